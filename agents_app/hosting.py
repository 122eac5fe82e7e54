"""Host mode of a session: on or off, and the name by which peers address it."""

from __future__ import annotations

from mnesis_core.inbox import Hosting, hosting_after
from sessions_app import store
from sessions_app.ledger import Change
from sessions_app.queries import load_session


def change_hosting(record: Change, *, host_mode: bool | None, peer_name: str | None = None) -> None:
    """Write what somebody asks for; ``None`` leaves a value as it is.

    :raises InvalidRequest: host mode needs a name, or the name cannot be one.
    :raises PeerNameTaken: another session of the owner in host mode has this name.
    """
    if host_mode is None and peer_name is None:
        return
    session = load_session(record.session_id)
    before = Hosting(is_on=session.host_mode, name=session.peer_name)
    after = hosting_after(before, host_mode=host_mode, peer_name=peer_name, agent=session.agent)
    if after != before:
        store.update_session(record, hosting=after)
