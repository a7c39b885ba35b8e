"""Who a client is, and what it may do.

Law: knows names, secrets and patterns; no connection, no topic, no frame. Decides, and leaves it to others to act.
"""

from stompbroker.access.audit import Audit
from stompbroker.access.authenticator import AccessSettings, Authenticator, Credentials, LoginRefused, TooManyWrong
from stompbroker.access.grant import (
    ANYBODY,
    BRIDGE_PREFIX,
    BRIDGE_ROLE,
    EVERYTHING,
    Grant,
    Limits,
    Permissions,
    Right,
    grant_of_bridge,
)
from stompbroker.access.limits import LimitReached, Usage
from stompbroker.access.passwords import MIN_PASSWORD, hash_password
from stompbroker.access.users import BUILT_IN_ROLES, NAME_RULE, User, Users, UsersError, is_name
from stompbroker.access.users_file import change_users, load_users

__all__ = [
    "ANYBODY",
    "BRIDGE_PREFIX",
    "BRIDGE_ROLE",
    "BUILT_IN_ROLES",
    "EVERYTHING",
    "MIN_PASSWORD",
    "NAME_RULE",
    "AccessSettings",
    "Audit",
    "Authenticator",
    "Credentials",
    "Grant",
    "LimitReached",
    "Limits",
    "LoginRefused",
    "Permissions",
    "Right",
    "TooManyWrong",
    "Usage",
    "User",
    "Users",
    "UsersError",
    "change_users",
    "grant_of_bridge",
    "hash_password",
    "is_name",
    "load_users",
]
