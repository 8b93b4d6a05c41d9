"""Frameworks that own the training loop: their callbacks speak for the script.

    aegis.worker.adapters.huggingface    a callback for transformers' Trainer
    aegis.worker.adapters.lightning      a callback for Lightning's Trainer

They tell of steps and losses, save and end when the launcher announces a stop, and find the newest
whole checkpoint. The frameworks go on writing their own checkpoints. For torchtitan, Megatron-LM
and Primus nothing is imported: `aegis run --log-pattern` reads their lines.
"""
