"""Many invented fleets against the real core: one seed fixes a fleet and all that befalls it.

`setting` is what a seed draws: fleet, jobs, policy, weather. `clock` and `scene` are virtual time
and what all parts share, the bare truth among it. `network` delays, repeats, reorders and loses.
`controller` is the real core over a log that outlives it. `uplink`, `agent`, `launcher`, `training`
and `machine` are a node that follows the real protocol. `misfortune` is what goes wrong, `promises`
what must hold at every moment, `outcome` what must have mended once the weather has cleared.
"""
