"""What operators wrote: the YAML surface, parsed strictly, and the plain snapshot that assembly reads.

| file | owns |
|---|---|
| problem | a problem and its place; PolicyError, PolicyUnreadable |
| reading | files that are read again and again, within bounds |
| source | the bytes of a file or a directory, from one resolved place |
| scalars, units | what a plain YAML scalar means; durations and sizes |
| parse | bytes → tree; everything that is wrong as YAML |
| tree | values with places, and how to find them by path |
| merge | the files of a directory → one tree |
| schema/ | the pydantic classes of the whole surface; the JSON Schema comes from them |
| wording | pydantic's complaints → problems in plain words |
| references, limit_references, saved_references | cross-checks over the tree, also when other fields are wrong |
| support | the one list of what is not built yet |
| reach, limit_reach, tenant_reach | warnings: what can match nothing, limits that hold nobody or everybody |
| saved_reach | warnings: caches, joining and merging that save nothing |
| build, build_providers, build_routes, build_saved | validated policy → snapshot |
| load | all of it in order: bytes → PolicySnapshot, or all problems |
| secret_sources | values that the policy names: environment variables and files |
| snapshot | PolicySnapshot: plain frozen values |
| identities | by what live state is known, and was known before renamings |
| difference/ | two snapshots → what going from one to the other does to live state |
"""
