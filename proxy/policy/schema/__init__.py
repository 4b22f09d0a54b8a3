"""The whole surface of the policy as strict pydantic classes; the JSON Schema for editors comes from them.

| file | owns |
|---|---|
| types | durations, sizes, ratios, names and other single values; what is said about wrong ones |
| base | what all sections have in common; fields and their defaults |
| fleet | `fleet`, `limits`, `classes`, `tenants`, `telemetry`, `intercept` |
| providers | `providers` and what is below them |
| hosts | where a provider is: `base_url`, and `hosts` |
| routes | `routes` and what is below them |
| saved | `cache` and `merge` of a route |
| policy | the policy itself |
| export | the JSON Schema, and which names are known at a path |

Defaults come from the settings classes of the decisions that use them, or from the snapshot. Rules that look
at more than one value stand in `policy/references.py`, so that they speak up whatever else is wrong.
"""
