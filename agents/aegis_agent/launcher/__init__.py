"""`aegis run`: the launcher of one job on one node.

It owns the ranks, and goes on while agent and controller are away.

    options       what the user asked for, from torchrun's flags and our own
    obey          pure: which part of an assignment is news, and what it asks for
    launcher      all of it together
    links         the lines to the agent and, when that is away, to the controller
    generation    the ranks of one generation on this node, from their start to the last exit
    failure       why a rank ended, in words
    crew          the processes it owns: the rendezvous stores, the ranks' parent
    helpers       such a process: JSON lines, started again when it dies
    isolation     pure: whether it is cut off, so that its ranks must end
    embedded      a controller for a launcher that has none
"""
