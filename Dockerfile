FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir dist .

FROM python:3.13-slim AS system
# A fixed uid, so that the owner of a mounted directory can be set from outside. A new volume takes over the owner of its
# directory, so the directories are created first.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin broker \
    && install --directory --owner broker --group broker /data /standby /lake /reports
ENTRYPOINT ["stompbroker"]

# The nightly report, and the Spark that computes it: `docker build --target analytics .`
FROM system AS analytics
# Mounted, not copied: no layer keeps the sources or the wheel.
RUN --mount=from=build,source=/src,target=/src \
    pip install --no-cache-dir --constraint /src/constraints.txt "$(ls /src/dist/*.whl)[analytics]"
# matplotlib and Spark write small files, and this user has no home.
ENV HOME=/tmp
USER broker
VOLUME /reports
CMD ["report", "--nightly", "--data", "/data", "--out", "/reports"]

# The last stage, so `docker build .` makes this one.
FROM system AS broker
RUN --mount=from=build,source=/src,target=/src \
    pip install --no-cache-dir --constraint /src/constraints.txt "$(ls /src/dist/*.whl)[postgres,certificates]"
USER broker
VOLUME /data
EXPOSE 61612 61613 8613

# `stats` asks the running broker through its data directory, so it answers only if the event loop runs.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["stompbroker", "stats", "--data", "/data"]
# In a container others reach the broker, so it refuses to start before there is a user:
#   docker run --rm -it -v broker:/data IMAGE users add NAME --data /data --read '>' --write '>'
CMD ["serve", "--host", "0.0.0.0", "--data", "/data"]
