"""The long-running tasks: each a file with one `async def run`, started by the nursery in `broker.py`.

Law: no actor imports another; they meet in the topic stores and sessions they are given. One that must do something
before anybody is served takes a `task_status`; the others are ready when they are made.
"""
