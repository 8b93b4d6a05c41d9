"""When a launcher is cut off."""

from aegis_agent.launcher.isolation import ASK_SECONDS, Isolation, Verdict


def judge(now, *, heard_at=0.0, agent_up=False, can_ask=True, isolation=None):
    isolation = isolation or Isolation(limit_seconds=60.0, moved_at=0.0)
    return isolation.judge(now, heard_at, agent_up=agent_up, can_ask=can_ask)


def test_losing_the_controller_stops_nothing_that_moves() -> None:
    """Ranks that complete steps go on for ever without anyone."""
    isolation = Isolation(limit_seconds=60.0, moved_at=0.0)
    for hour in range(24):
        isolation.moved(hour, 3600.0 * hour)
        assert judge(3600.0 * hour + 59, isolation=isolation) is Verdict.FINE


def test_a_slow_step_is_no_isolation_while_someone_answers() -> None:
    """Loading for minutes is nothing to end a rank for."""
    assert judge(600.0, heard_at=599.0) is Verdict.FINE


def test_nobody_answers_and_nothing_moves() -> None:
    """The job may have been started elsewhere."""
    assert judge(59.0) is Verdict.FINE
    assert judge(61.0) is Verdict.ISOLATED


def test_an_agent_that_says_nothing_is_not_the_controller() -> None:
    """It may be cut off itself: the controller is asked, and has a while to answer."""
    isolation = Isolation(limit_seconds=60.0, moved_at=0.0)
    assert judge(61.0, agent_up=True, isolation=isolation) is Verdict.ASK
    assert judge(62.0, agent_up=True, heard_at=61.5, isolation=isolation) is Verdict.FINE
    assert judge(130.0, agent_up=True, isolation=isolation) is Verdict.ASK
    late = 130.0 + ASK_SECONDS
    assert judge(late, agent_up=True, isolation=isolation) is Verdict.ISOLATED


def test_an_agent_is_believed_where_nobody_else_can_be_asked() -> None:
    """Without the controller's address the agent is all there is."""
    assert judge(1000.0, agent_up=True, can_ask=False) is Verdict.FINE
