"""`aegis rules`: check, test, show, explain, simulate, and how far each rule may go."""
