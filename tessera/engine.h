// What programs include beside tessera/tessera.h that look behind a training: the command `tessera`, the Python
// bindings, benchmarks. Everything in these headers is documented where it is declared.
#pragma once

#if __cplusplus < 202002L
#error "Tessera needs C++20: compile with -std=c++20, or set_target_properties(... CXX_STANDARD 20) in CMake"
#endif

// What all parts use.
#include "tessera/base/files/file_system.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/limits.h"
#include "tessera/base/printable.h"
#include "tessera/base/thread.h"
#include "tessera/base/usage_error.h"
#include "tessera/tensor/dlpack/truths.h"
#include "tessera/tensor/tensor.h"

// Where a job's scheduler is, what this host is to others, and who is guilty when a job has failed.
#include "tessera/cluster/dashboard/dashboard_answers.h"
#include "tessera/cluster/network.h"
#include "tessera/cluster/ranks/environment.h"
#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/cluster/rendezvous/host_port.h"
#include "tessera/cluster/report/why.h"

// Files of checkpoints: reading, writing, converting, comparing.
#include "tessera/checkpoint/convert/diff.h"
#include "tessera/checkpoint/convert/merge_strategies.h"
#include "tessera/checkpoint/convert/safetensors.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/lock/find_writer.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/checkpoint/read/inspect.h"
#include "tessera/checkpoint/read/list.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/read/safetensors_header.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/checkpoint/strategy/group_file.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/checkpoint/write/checkpoint_config.h"
#include "tessera/checkpoint/write/retention.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/checkpoint/write/save_trigger.h"
#include "tessera/train/saving/rank_barrier.h"

// Graphs, and what a compilation makes of them.
#include "tessera/compiler/autodiff.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/schedule/memory_report.h"
#include "tessera/compiler/simulate.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/verify.h"

// Operators of a program's own: what a definition says, and what it asks of its operands.
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"

// Plans: how a step is split, what that costs, what is best.
#include "tessera/compiler/choose_plan.h"
#include "tessera/compiler/cost/machines.h"
#include "tessera/compiler/pipelines/choose_stages.h"
#include "tessera/compiler/search/layer_pattern.h"
#include "tessera/compiler/search/plan_cost.h"
#include "tessera/compiler/search/plan_record.h"
#include "tessera/compiler/search/search.h"
#include "tessera/mesh/batch_layout.h"
#include "tessera/mesh/rank_limits.h"
#include "tessera/mesh/strategy_error.h"
#include "tessera/pipeline/schedule_text.h"
#include "tessera/solver/problem/problem_json.h"
#include "tessera/solver/solve.h"
#include "tessera/train/modes/automatic_plan.h"

// Timelines of jobs: joining what the ranks have recorded, and what it says.
#include "tessera/timeline/align_clocks.h"
#include "tessera/timeline/perfetto/perfetto_trace.h"
#include "tessera/timeline/timeline_files.h"
#include "tessera/timeline/timeline_summary.h"

// Sessions: values, compiled steps, kernels, how fast a machine is.
#include "tessera/executor/profile_table.h"
#include "tessera/kernels/cuda/cuda_backend.h"
#include "tessera/kernels/machine.h"
#include "tessera/kernels/registry.h"
#include "tessera/session/agree/agree_on_step.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/session/machine_speed.h"
#include "tessera/session/records/compare_values.h"
#include "tessera/session/session.h"
#include "tessera/session/speed/device_speed.h"
#include "tessera/session/trace.h"
#include "tessera/train/logs/csv_row.h"
#include "tessera/train/options/recorded_steps.h"
#include "tessera/train/translation/beam_search.h"
