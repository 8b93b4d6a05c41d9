"""The node's side of Aegis: senses faults, tells the controller, hands its answers to launchers."""
