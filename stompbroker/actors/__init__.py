"""The long-running tasks: each a file with one `async def run`, started by the nursery in `broker.py`.

Law: no actor imports another; they meet in the topic stores and sessions they are given.
"""
