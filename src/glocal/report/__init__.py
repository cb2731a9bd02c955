"""Results as people read them: tables and figures."""
