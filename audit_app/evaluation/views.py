"""The pages of evaluations, for staff: which reports there are, and one of them with its charts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from audit_app.evaluation.charts import draw_report
from audit_app.evaluation.evaluate import (
    ask_worker,
    find_asked_model,
    heard_of,
    list_reports,
    load_report,
    plan_session,
)
from mnesis_core.compaction.evaluation.measures import POLICY_NAMES, Report, Row, say_share, sum_up, table_of
from mnesis_core.errors import NotFound
from mnesis_core.spending import Spent
from sessions_app.conf import DEMO, list_models
from sessions_app.pages.formats import format_counted, format_money, format_number, localised
from sessions_app.pages.permissions import inspected
from sessions_app.pages.views import model_label, reader_of, signed_in, signed_in_to_post

COMMAND = "python manage.py evaluate_memory conversation.jsonl"

SILENT_SECONDS = 120
UNKNOWN_COST = gettext_noop("not known")  # as ``table_of`` says it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    record: Report

    @property
    def at(self) -> datetime | None:
        try:
            return datetime.fromisoformat(self.record.at)
        except ValueError:
            return None

    @property
    def is_running(self) -> bool:
        return bool(self.record.progress) and time.time() - heard_of(self.record.id) < SILENT_SECONDS

    @property
    def names(self) -> str:
        return ", ".join(one.name for one in self.record.conversations)

    @property
    def models(self) -> str:
        return ", ".join(dict.fromkeys(one.model for one in self.record.measurements))

    @property
    def windows(self) -> str:
        return ", ".join(format_number(window) for window in sorted({one.window for one in self.record.measurements}))

    @property
    def shares(self) -> list[tuple[str, str]]:
        """The shares of facts that Mnesis and truncation show in the smallest window."""
        rows = sum_up(self.record)
        smallest = min((row.window for row in rows), default=0)
        found: dict[str, Row] = {}
        for row in rows:
            if row.window == smallest:
                found.setdefault(row.policy, row)
        return [
            (_(POLICY_NAMES[policy]), say_share(found[policy].facts))
            for policy in ("mnesis", "truncation")
            if policy in found
        ]

    @property
    def facts(self) -> list[tuple[str, str]]:
        asked = sum(question.kind == "asked" for one in self.record.conversations for question in one.questions)
        own = format_counted(asked, "question") if asked else ""
        facts = [
            (_("Conversations"), format_number(len(self.record.conversations))),
            (_("Messages"), format_number(sum(one.messages for one in self.record.conversations))),
            (_("Tokens"), format_number(sum(one.tokens for one in self.record.conversations))),
            (_("Facts planted in each"), format_number(self.record.plant)),
            (_("Of their own"), own),
            (_("Seed"), str(self.record.seed)),
        ]
        return [(label, value) for label, value in facts if value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An evaluation that may cost money, to be agreed to."""

    session_id: str
    alias: str
    most: Spent

    @property
    def price(self) -> str:
        if self.most.unpriced_calls:
            return _("an unknown sum")
        return _("about %(cost)s") % {"cost": format_money(self.most.cost_micros)}

    @property
    def tokens(self) -> str:
        return format_number(self.most.tokens)

    @property
    def agreed(self) -> str:
        return str(self.most.cost_micros)


@signed_in
def evaluation_list(request: HttpRequest) -> HttpResponse:
    """The newest reports; with ``session`` and ``model`` also what that evaluation would cost."""
    _refuse_others(request)
    context = {
        "reports": [ReportView(record=report) for report in list_reports()],
        "models": [(spec.alias, model_label(spec)) for spec in list_models(user_id=reader_of(request))],
        "demo": DEMO.alias,
        "command": COMMAND,
        "plan": _plan(request, request.GET) if "session" in request.GET else None,
    }
    return render(request, "audit_app/evaluation/evaluations.html", context)


def _plan(request: HttpRequest, given: QueryDict) -> Plan:
    """:raises SessionNotFoundError, ModelNotFoundError: they are not there for this person"""
    session = inspected(request, given.get("session", "").strip())
    alias = given.get("model", "") or DEMO.alias
    most = plan_session(session.id, alias, user_id=reader_of(request))[1]
    return Plan(session_id=session.id, alias=alias, most=most)


@signed_in
def evaluation(request: HttpRequest, report_id: str) -> HttpResponse:
    _refuse_others(request)
    report = load_report(report_id)
    header, rows = _table(sum_up(report))
    apart = sum_up(report, apart=True)
    tables = [(told, _table([row for row in apart if row.conversation == told.name])) for told in report.conversations]
    context = {
        "report": ReportView(record=report),
        "charts": draw_report(report),
        "header": header,
        "rows": rows,
        "tables": tables if len(tables) > 1 else [],
    }
    return render(request, "audit_app/evaluation/evaluation.html", context)


@signed_in_to_post
def start_evaluation(request: HttpRequest) -> HttpResponse:
    """Have a worker evaluate a session that this person may read; what may cost money is shown first, and agreed to."""
    _refuse_others(request)
    plan = _plan(request, request.POST)
    is_free = find_asked_model(plan.alias).is_demo
    if not is_free and request.POST.get("agreed") != plan.agreed:
        asked = urlencode({"session": plan.session_id, "model": plan.alias})
        return redirect(f"{reverse('evaluations')}?{asked}")
    report = ask_worker(plan.session_id, plan.alias, user_id=reader_of(request))
    return redirect("evaluation", report_id=report.id)


def _table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return ``table_of`` in the language of the page."""
    header, cells = table_of(rows)
    shown = [[_cell(name, text) for name, text in zip(header, line, strict=True)] for line in cells]
    return [_(name) for name in header], shown


def _cell(column: str, text: str) -> str:
    if column == "Model" or not text:
        return text
    if column != "Policy":
        return _(text) if text == UNKNOWN_COST else localised(text)
    policy, _comma, does_not_fit = text.partition(", ")
    return _("%(policy)s, does not fit") % {"policy": _(policy)} if does_not_fit else _(policy)


def _refuse_others(request: HttpRequest) -> None:
    """:raises NotFound: the person is not of the staff."""
    if not request.user.is_staff:
        raise NotFound()
