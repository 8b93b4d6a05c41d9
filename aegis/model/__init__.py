"""The words: events, actions and the things they speak of. Frozen, plain, no I/O.

Every noun is defined once, here; `aegis.wire` turns them into JSON and back. Times are seconds
since the Unix epoch (UTC); the ones named `at` were read from the controller's clock, once per
event. Steps are optimizer steps completed.
"""
