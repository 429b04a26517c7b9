#!/bin/bash
# The whole table on a bare GPU machine, in a process session of its own, so that it outlives the command that began it.
#   bash zz_table.sh start          unpack the peers, make the model, begin
#   bash zz_table.sh wait SECONDS   wait at most so long for its end; copy what there is to $OUT
# Dry, on a CPU: PYTHON=.venv/bin/python MODEL=course/model TABLE="--requests 1,2 ..." bash zz_table.sh start
W=/tmp/table; mkdir -p $W; PYTHON=${PYTHON:-python3}
MODEL=${MODEL:-/tmp/gpt2}
TABLE=${TABLE:---dtype float16 --requests 1,4,8,16,32,64,128,256 --rounds 5 --profile 1,32,256 --load-limit 300 --round-limit 60}
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_USE_FLASHINFER_SAMPLER=0 PYTHONUNBUFFERED=1
export TVM_FFI_DISABLE_TORCH_C_DLPACK=1 VLLM_HOST_IP=127.0.0.1 GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo
export VLLM_DISABLE_COMPILE_CACHE=1 # two forms of vLLM compile at the same time: none may read what the other half wrote

unpack() {
  [ -d .pack ] || return 0
  mkdir -p /tmp/site /tmp/ct2
  for archive in .pack/*.xz; do
    into=/tmp/site; [ "$(basename "$archive")" = ct2.tar.xz ] && into=/tmp/ct2
    $PYTHON -c "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='fully_trusted')" "$archive" $into &
  done
  wait
  $PYTHON -m compileall -q -j 0 /tmp/site >/dev/null 2>&1 # or each of vLLM's processes compiles all that it imports
}

all() {
  set -e; rm -f $W/*; date +%T; unpack; date +%T
  [ -e $MODEL/config.json ] || $PYTHON -m course.bench.make_model $MODEL
  for answer in block_pool/with_a_list block_table/other_order scheduler/functional gpt2/by_hand weights/with_struct \
    triton_attention/a_program_a_row triton_slot_write/head_by_head attention/block_by_block; do # the learner's engine
    cp tests/judge/answers/$answer.py practice/${answer%/*}.py
  done
  date +%T
  if [ -z "$DRY" ]; then # what is compiled for these lies on the disk when their warm-up comes, after all have loaded
    for n in 1 32; do
      $PYTHON -m course.bench --model $MODEL --dtype float16 --systems hf-static --requests $n --rounds 1 >$W/static-$n.log 2>&1 &
    done
  fi
  $PYTHON -m course.bench --model $MODEL $TABLE --vllm-python /tmp/site --ctranslate2-python /tmp/ct2 --output $W/benchmark-h200.json && code=0 || code=$?
  date +%T
  $PYTHON -m course.bench.memory --model $MODEL ${MEMORY:---dtype float16} --output $W/memory-h200.json || true
  echo "the table's exit status: $code"; date +%T; touch $W/done
}

case $1 in
  start) export -f all unpack; export W PYTHON MODEL TABLE; setsid nohup bash -c all >$W.log 2>&1 </dev/null & disown ;;
  wait)
    for ((second = 0; second < $2; second++)); do [ -e $W/done ] && break; pgrep -f course.bench >/dev/null || [ $second -lt 60 ] || break; sleep 1; done
    cp $W.log $W/*.json $W/static-*.log "$OUT"/ 2>/dev/null; tail -c 9000 $W.log; [ -e $W/done ] ;;
esac
