"""A data source of one's own: a function in a file, with settings, that any command can name.

``glocal compare --data 'shops.py:shops(days=200)'`` would take the same.
"""

import tempfile
from pathlib import Path

import glocal

SOURCE = '''
import numpy as np

def shops(days: int = 100, seed: int = 0) -> dict:
    """Sales of three shops, day by day, and whether a day is among the better half of its shop."""
    draw = np.random.default_rng(seed)
    shop = np.repeat(["north", "south", "west"], days)
    weekday, rain = draw.integers(0, 7, 3 * days), draw.random(3 * days)
    level = np.repeat(draw.normal(0, 1, 3), days)
    sales = level + (weekday >= 5) - rain + draw.normal(0, 0.3, 3 * days)
    table = {"shop": shop, "weekday": weekday.astype(float), "rain": rain}
    table["good"] = np.where(sales > level, "yes", "no")
    return {"x": table, "y": "good", "clients": "shop"}
'''

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "shops.py"
    file.write_text(SOURCE, encoding="utf-8")
    fed = glocal.load(f"{file}:shops(days=40)")

print(f"{len(fed)} clients ({', '.join(fed.names)}), {len(fed.x)} days, {fed.x.shape[1]} features")
run = glocal.fit("fedavg", fed, model="mlp(8)", rounds=10, baseline="local(max_epochs=20)")
print(run)
