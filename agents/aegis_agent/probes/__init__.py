"""Pure judgement: samples in, faults and device states out. No clock, no file, no socket.

Each probe takes what was remembered of a device and one new sample, and gives what to remember,
the faults that the sample shows, and how the device stands. Faults are edges: each is given once.
"""
