"""What is to be expected, and what the fleet has taught."""

from fastapi import APIRouter

from aegis.controller.api.access import Here
from aegis.controller.problems import RESPONSES
from aegis.controller.views import Forecast, forecast_view

router = APIRouter(tags=["forecast"], responses=RESPONSES)


@router.get("/forecast")
async def show_forecast(here: Here) -> Forecast:
    """Spares needed, time well used by each job, what helped, and lemons: all as measured."""
    return forecast_view(here.cluster)
