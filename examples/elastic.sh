#!/usr/bin/env bash
# Tutorial 004 from end to end: a Transformer is trained on eight ranks, goes on with four, and predicts on eight, four and one;
# then the same from a pipeline of two stages.
#
#   examples/elastic.sh FOLDER [WMT14]
#
# FOLDER is made and takes everything that is written. WMT14 is a folder with newstest2014-fren-ref.en.sgm and .fr.sgm; without it
# the text is a made-up language. TESSERA_BIN names the folder of the programs (build/release/bin), PYTHON the interpreter that has
# the package tessera, for the one step that is said in Python. All ranks are threads of this machine: `tessera run -n 8` in place of
# `--threads 8` makes them processes, and mpirun spreads them over machines.
set -euo pipefail
folder=${1:?usage: examples/elastic.sh FOLDER [WMT14]}
wmt14=${2:+$(realpath "$2")}
bin=$(realpath "${TESSERA_BIN:-$(dirname "$0")/../build/release/bin}")
mkdir -p "$folder"
cd "$folder"
rm -rf {src,dst,second}_checkpoints{,_pipeline} {src,dst}_strategy.ckpt src_pipeline_strategys src_pipeline_strategy.ckpt by_rank{,_pipeline}

say() { printf '\n== %s\n' "$*"; }
job() { # RANKS OPTIONS...: the example on so many ranks
  local ranks=$1
  shift
  "$bin/tessera" run --threads "$ranks" "$bin/transformer_wmt14" "${text[@]}" "${settings[@]}" "$@"
}
# The tutorial's settings, but for the sizes: sentences cut to their first words, one layer that reads and one that writes.
settings=(--form tutorial --vocabulary_size 2000 --hidden_size 32 --num_heads 4 --batch_size 32 --print_loss 1
  --optimizer adam_weight_decay --weight_decay 0.1 --learning_rate 1e-3)
split() { # RANKS OPTIONS...: layers cut into four parts, the batch into as many as ranks are left
  local ranks=$1
  shift
  job "$ranks" --parallel_mode semi_auto_parallel --model_parallel $((ranks < 4 ? ranks : 4)) "$@"
}
stages() { # RANKS OPTIONS...: two stages, each of half of the ranks, which cut their layers into as many parts
  local ranks=$1
  shift
  job "$ranks" --parallel_mode pipeline_parallel --stages 2 --micro_batches 4 --schedule 1f1b --model_parallel $((ranks / 2)) "$@"
}
losses() { grep -E '^epoch: [0-9]+ step: [0-9]+, loss is ' "$1" | sed 's/,//' | awk -v epoch="$2" '$2 == epoch { print $4, $7 }'; }
compare() { # FILE FILE: of each step of the second epoch; fails where two losses are further apart than 1e-5
  paste <(losses "$1" 2) <(losses "$2" 2) | awk '{ d = $2 - $4; d = d < 0 ? -d : d; if (d > most) most = d; steps++; if ($1 != $3 || $2 $4 ~ /n/) other = 1 }
    END { printf "%d steps, losses at most %.3g apart\n", steps, most; exit steps == 0 || other || most > 1e-5 }'
}

same() { # FILE FILE: predictions, of each token the word that follows and its score; fails where words differ or scores are further apart than 1e-5
  paste <(tr ' ' '\n' < "$1") <(tr ' ' '\n' < "$2") | awk 'NR % 2 { words++; if ($1 != $2) other++; next } { if ($1 $2 ~ /n/) other++; d = $1 - $2; d = d < 0 ? -d : d; if (d > most) most = d }
    END { printf "%d words, %d differ, scores at most %.3g apart\n", words, other, most; exit words == 0 || other > 0 || most > 1e-5 }'
}

by_rank() { # CHECKPOINTS STRATEGY CONVERTED FOLDER: each of four ranks made from the files that it needs alone; fails where bytes are not those CONVERTED
  "${PYTHON:-python3}" - "$1" "$2" "$4" << 'END'
import glob
import os
import sys

import tessera.checkpoint as ckpt

checkpoints, strategy, folder = sys.argv[1:]
for rank in range(4):
    needed = ckpt.rank_list_for_transform(rank, strategy, "dst_strategy.ckpt")
    sources = {source: glob.glob(f"{checkpoints}/rank_{source}/*.ckpt")[0] for source in needed}
    os.makedirs(f"{folder}/rank_{rank}")
    ckpt.transform_checkpoint_by_rank(rank, sources, f"{folder}/rank_{rank}/transformed{rank}.ckpt", strategy, "dst_strategy.ckpt")
    print(f"rank {rank} is made of those of {needed}")
END
  for rank in 0 1 2 3; do cmp "$3/rank_$rank/transformed$rank.ckpt" "$4/rank_$rank/transformed$rank.ckpt"; done
}
has_package() { "${PYTHON:-python3}" -c 'import tessera' 2> /dev/null || { echo "left out: PYTHON has no package tessera" && false; }; }

if [ -n "$wmt14" ]; then
  text=(--source "$wmt14/newstest2014-fren-ref.en.sgm" --target "$wmt14/newstest2014-fren-ref.fr.sgm")
  lengths=(--source_length 10 --target_length 10)
  # For the pipeline: all translations of the sentences that are taken have so many words.
  full_lengths=(--source_length 10 --target_length 8 --steps 20)
else
  "$bin/transformer_wmt14" --make_data text --train_pairs 2000 --test_pairs 50
  text=(--source text/train.source.sgm --target text/train.target.sgm)
  lengths=(--source_length 4 --target_length 4)
  full_lengths=("${lengths[@]}" --steps 20)
fi

say "Eight ranks, 2 parts of the batch by 4 parts of each layer, the optimizer's states shared: two epochs that nothing interrupts"
split 8 "${lengths[@]}" --parallel_optimizer --epochs 2 > whole.txt
grep '^epoch [0-9]' whole.txt

say "The same for one epoch; each rank saves its slices, and one file says how they were cut"
split 8 "${lengths[@]}" --parallel_optimizer --epochs 1 --strategy_ckpt_save_file src_strategy.ckpt \
  --checkpoint_dir src_checkpoints --prefix src_checkpoint --no_integrated_save > first.txt
ls src_checkpoints/rank_7

say "Four ranks, 1 part of the batch by 4 parts of each layer: compiled, to learn how these cut"
split 4 "${lengths[@]}" --only_compile --strategy_ckpt_save_file dst_strategy.ckpt

say "Convert all, and say that nothing has changed"
"$bin/tessera" ckpt transform src_checkpoints dst_checkpoints --prefix transformed --src_strategy src_strategy.ckpt --dst_strategy dst_strategy.ckpt
"$bin/tessera" ckpt diff src_checkpoints dst_checkpoints --left_strategy src_strategy.ckpt | tail -n 1

say "Convert rank by rank, each from the files that it needs: the same bytes"
if has_package; then by_rank src_checkpoints src_strategy.ckpt dst_checkpoints by_rank; fi

say "Four ranks go on: the second epoch's losses are those of the eight that were not interrupted"
split 4 "${lengths[@]}" --resume dst_checkpoints --epochs 2 --checkpoint_dir second_checkpoints --prefix second --no_integrated_save > second.txt
grep '^going on' second.txt
compare whole.txt second.txt

say "Three ranks go on from the eight's files as they are: nothing has to be converted"
job 3 "${lengths[@]}" --parallel_mode data_parallel --resume src_checkpoints --epochs 2 > third.txt
compare whole.txt third.txt

say "Eight, four and one rank predict with what the four have learned"
for ranks in 8 4 1; do split "$ranks" "${lengths[@]}" --evaluate second_checkpoints --predictions "predictions_$ranks.txt" > /dev/null; done
same predictions_8.txt predictions_4.txt
same predictions_8.txt predictions_1.txt
head -n 1 predictions_8.txt | cut -c 1-100

# A micro-batch of a pipeline divides its loss by its own number of words. Where all translations have equally many, the losses are
# those of ranks without stages, too.
say "Eight ranks as 2 stages, each layer in 4 parts, 4 micro-batches: two epochs of 20 steps that nothing interrupts"
stages 8 "${full_lengths[@]}" --epochs 2 > whole_pipeline.txt
grep '^epoch [0-9]' whole_pipeline.txt

say "The same for one epoch; each rank saves its slices, and each stage has a file that says how its own were cut"
mkdir src_pipeline_strategys
stages 8 "${full_lengths[@]}" --epochs 1 --strategy_ckpt_save_file 'src_pipeline_strategys/src_strategy{}.ckpt' \
  --checkpoint_dir src_checkpoints_pipeline --prefix src_checkpoint --no_integrated_save > first_pipeline.txt
ls src_pipeline_strategys

say "Merge the stages' strategy files, and convert all to the four ranks without stages"
"$bin/tessera" ckpt merge-strategies src_pipeline_strategys src_pipeline_strategy.ckpt
"$bin/tessera" ckpt transform src_checkpoints_pipeline dst_checkpoints_pipeline --prefix transformed \
  --src_strategy src_pipeline_strategy.ckpt --dst_strategy dst_strategy.ckpt
"$bin/tessera" ckpt diff src_checkpoints_pipeline dst_checkpoints_pipeline --left_strategy src_pipeline_strategy.ckpt | tail -n 1

say "Convert rank by rank, each from the files of both stages that it needs: the same bytes"
if has_package; then by_rank src_checkpoints_pipeline src_pipeline_strategy.ckpt dst_checkpoints_pipeline by_rank_pipeline; fi

say "Four ranks without stages go on: the second epoch's losses are those of the pipeline that was not interrupted"
split 4 "${full_lengths[@]}" --resume dst_checkpoints_pipeline --epochs 2 --checkpoint_dir second_checkpoints_pipeline --prefix second --no_integrated_save \
  > second_pipeline.txt
grep '^going on' second_pipeline.txt
compare whole_pipeline.txt second_pipeline.txt

say "Four ranks as 2 stages go on from the eight's files as they are"
stages 4 "${full_lengths[@]}" --resume src_checkpoints_pipeline --epochs 2 > third_pipeline.txt
compare whole_pipeline.txt third_pipeline.txt

say "Eight ranks as 2 stages, four without and one predict with what the four have learned"
stages 8 "${full_lengths[@]}" --evaluate second_checkpoints_pipeline --predictions predictions_8_pipeline.txt > /dev/null
for ranks in 4 1; do
  split "$ranks" "${full_lengths[@]}" --evaluate second_checkpoints_pipeline --predictions "predictions_${ranks}_pipeline.txt" > /dev/null
done
same predictions_8_pipeline.txt predictions_4_pipeline.txt
same predictions_8_pipeline.txt predictions_1_pipeline.txt

say "done: everything is in $folder"
