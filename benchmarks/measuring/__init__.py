"""How each kind of scenario is measured.

Law: one file per kind. A measurement starts the roles it needs, tells them when to begin, and turns their reports into
figures; whatever makes the figures meaningless is `Broken`.
"""
