"""Addresses of the pages about agents and their tools."""

from django.urls import path

from agents_app import views

urlpatterns = [path("tools/", views.tools, name="tools")]
