"""The root helper: the one part of Aegis that may break something on a node, and so a tiny one.

    python -m aegis_agent.helper        systemd starts it for one connection

It knows two verbs, `reset-domain` and `reboot`. One line of JSON in is one order, one line out
says what was done, or why nothing was. It believes nothing that it can check itself:

1. the peer is the agent's user (SO_PEERCRED)
2. the order is for this node and this boot, of no older controller than any before, not expired
3. its id was not seen before; one that was is answered with what was done then
4. what it is about is still so, by a look of its own in a process that may hang
5. a reset hits just the GPUs and the processes that the order names, no others
6. after all that it is still not expired

It is plain standard library. What calls amdsmi or reads YAML does so in a child with a deadline.
"""
