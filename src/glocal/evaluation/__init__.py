"""What models do on clients' data: metrics, paired tests, summaries, communication."""
