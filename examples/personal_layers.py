"""Which layers are shared, and which stay with each client: from all, over some, to none."""

import glocal

fed = glocal.load("digits", clients=10, partition="dirichlet(0.3)", split=(0.3, 0.1, 0.6))
settings = {"model": "mlp(32)", "rounds": 15, "baseline": "local(max_epochs=20)"}
shared = {
    "all layers": "fedavg",
    "all, and a model of its own": "ditto(lam=0.1)",
    "all but the last": "fedavg(shared=all-but-last)",
    "the last alone": "fedavg(shared=last(1))",
}

print(f"{'shared':<28} mean %  vs alone  better off  worse off  sent up")
for what, method in shared.items():
    run = glocal.fit(method, fed, **settings)
    s = run.summary
    print(
        f"{what:<28} {100 * s['mean']:6.1f}  {100 * s['benefit']:+8.1f}  {s['better_off']:>10}  "
        f"{s['worse_off']:>9}  {s['params_up']:>7,}"
    )

mine, yours = (run.client_model(name).module.state_dict() for name in ("0", "1"))
same = [name for name in mine if mine[name].equal(yours[name])]
print(f"\nWith the last layer shared, clients 0 and 1 have in common: {', '.join(same)}.")
