#!/bin/bash
# Train on two machines with four GPUs each: sbatch examples/cluster/slurm-torchrun.sh
# The collections and the run folder are on a file system that both machines see.
#SBATCH --job-name=uniot-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=08:00:00
#SBATCH --requeue
set -euo pipefail

labelled=${LABELLED:-labelled/}
unlabelled=${UNLABELLED:-unlabelled/}
run=${RUN:-run/}

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# Stored embeddings are in a database, which machines must not share.
export UNIOT_CACHE=${TMPDIR:-/tmp}/uniot-$SLURM_JOB_ID

# If the job is stopped and queued again, the run goes on from its last checkpoint.
srun torchrun --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node=4 --rdzv-backend=c10d \
    --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:29500" \
    -m uniot adapt "$labelled" "$unlabelled" --method uniot --fine-tune all --devices 4 \
    --nodes "$SLURM_JOB_NUM_NODES" --out "$run"
