"""What going from one policy to another does to live state, in words (`sponson diff`); pure, over two snapshots.

| file | owns |
|---|---|
| change | what was found: values, effects and warnings, a section for each thing |
| state | which decision cores a policy uses, by identity, and what becomes of them |
| fields | the settings that are compared, how they are written, and when a change acts |
| shares | limits: this instance's part of them, and what a change does to permits |
| rates | rpm and tpm: this instance's part of them, and what a change does to buckets |
| providers, keys, models | the sections of a provider and of what stands below it |
| addresses | what other addresses do to a provider's connections and breakers |
| tenants | the section of tenants |
| routes, tiers | the sections of routes |
| saved | caches, joining and merging of routes, and what becomes of kept answers |
| requests | which requests go elsewhere, by examples |
| compare | all of it: two snapshots → Difference |

`state` tells of the cores that `runtime/targets.py` and `runtime/assembly.py` ask for: a test assembles and compares.
"""
