"""How each kind of scenario is measured.

One file per kind. A measurement starts the roles it needs, tells them when to begin, and turns their reports into
figures. Anything that makes the figures meaningless is `Broken`.
"""
