# %% [markdown]
# # Rows of membound in pandas
# Cells are marked as Jupyter, VS Code and jupytext read them; as a script: `python3 rows.py run.jsonl`. It needs pandas.

# %%
import json
import subprocess
import sys

import pandas

record = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1].endswith(".jsonl") else "run.jsonl"
membound = sys.argv[2] if len(sys.argv) > 2 else "membound"


def report(*flags):
    """What `membound report` says of the record, as JSON."""
    return json.loads(subprocess.run([membound, "report", record, *flags], check=True, stdout=subprocess.PIPE).stdout)


# %% [markdown]
# What was measured: rows, one a case; the fields of an object are columns of their own, joined by a dot. A figure is an object:
# `payload_Bps.capability.value` is what the machine does undisturbed, the figure that tables show; `.low` and `.high` are its interval,
# and `payload_Bps.experienced` is what one gets.

# %%
all_rows = pandas.json_normalize(report("--format", "json"))
bandwidth = all_rows[(all_rows["metric"] == "bandwidth") & (all_rows["outcome"] == "measured")].copy()
bandwidth["GB/s"] = bandwidth["payload_Bps.capability.value"] / 1e9
bandwidth["lost"] = 1 - bandwidth["payload_Bps.experienced"] / bandwidth["payload_Bps.capability.value"]
print(bandwidth.pivot_table(index="kernel", columns=["threads", "level"], values="GB/s", aggfunc="max").round(1).to_string())

# %% [markdown]
# What a shared host takes: the share between what the machine can and what one got.

# %%
print(bandwidth.groupby("threads")["lost"].median().round(3).to_string())

# %% [markdown]
# CSV has the same columns, joined by an underscore: `membound report run.jsonl --format csv > run.csv`, then `pandas.read_csv("run.csv")`.
# A record itself is lines of JSON, too: raw samples as integers.

# %%
with open(record) as lines:
    visits = [line for line in map(json.loads, lines) if line["type"] == "measurement" and line["outcome"] == "measured"]
print(len(visits), "visits,", sum(len(visit["samples"]["ticks"]) for visit in visits), "samples")

# %% [markdown]
# What rows come to: levels, limits, the share of its limit that each kernel reached, what costs most, the verdict.

# %%
answers = report("--answers")[0]
print(pandas.json_normalize(answers["levels"]["all"])[["name", "claimed", "capacity"]].to_string())
for sentence in answers["sentences"]:
    print(sentence)
