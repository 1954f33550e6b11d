# docker build -t histo_monai .    Runs on CPUs, and on NVIDIA GPUs with `docker run --gpus all`: docs/cluster.md
FROM debian:12.11-slim
COPY . /usr/src/histo_monai
RUN /usr/src/histo_monai/containers/install.sh && useradd --uid 1000 --create-home histo
ENV PATH=/opt/histo_monai/bin:$PATH HOME=/home/histo MPLCONFIGDIR=/tmp/matplotlib
USER 1000
WORKDIR /project
CMD ["histo-monai", "doctor"]
