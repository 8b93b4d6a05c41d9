"""The controller: one writer around `aegis.core.step`, its event log, its API and its dashboard."""
