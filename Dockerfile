FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir dist .

FROM python:3.13-slim
# Mounted, not copied: neither the sources nor the wheel stay behind in a layer.
RUN --mount=from=build,source=/src,target=/src \
    pip install --no-cache-dir --constraint /src/constraints.txt "$(ls /src/dist/*.whl)[postgres]"

# A fixed number, so that the owner of a mounted /data can be set from outside. The directory belongs to
# the broker before it becomes a volume: a new volume takes over its owner.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin broker \
    && install --directory --owner broker --group broker /data
USER broker
VOLUME /data
EXPOSE 61613

# `stats` asks the running broker through its data directory, so it answers only if the event loop does.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["stompbroker", "stats", "--data", "/data"]
ENTRYPOINT ["stompbroker"]
CMD ["serve", "--host", "0.0.0.0", "--data", "/data"]
