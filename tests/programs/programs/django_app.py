"""A Django project in one file: ``django_app.py runserver``. Its views are those of examples/flask_app.py."""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, JsonResponse
from django.urls import path

from examples.compute_service import Compute
from rpcmq import as_cast, rpc

settings.configure(
    DEBUG=True,
    SECRET_KEY="for tests",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[],
)

compute = rpc.stub(Compute, "compute", timeout=5)


def list_instances(request: HttpRequest) -> Any:
    return JsonResponse(list(compute.list_instances(None)), safe=False)


def show(request: HttpRequest, instance_id: str) -> Any:
    try:
        return JsonResponse({"id": instance_id, "state": compute.show(None, instance_id)})
    except LookupError as error:
        return JsonResponse({"error": str(error)}, status=404)


def reboot(request: HttpRequest, instance_id: str) -> Any:
    as_cast(compute.reboot)(None, instance_id)
    return JsonResponse({"id": instance_id, "state": "rebooting"}, status=202)


urlpatterns = [
    path("instances", list_instances),
    path("instances/<str:instance_id>", show),
    path("instances/<str:instance_id>/reboot", reboot),
]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
