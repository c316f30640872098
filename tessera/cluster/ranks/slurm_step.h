// What srun tells the tasks of a job step: who each of them is, and on which nodes they are. Text in, values out; the
// environment is read by launch.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cluster {

// As many nodes as a job may have ranks, and more text than their names are.
inline constexpr size_t kMaxSlurmNodes = 16'384;
inline constexpr size_t kMaxSlurmNameBytes = 1 << 20;

// The nodes of a list as Slurm writes it, in its order: "node[01-03,07],gpu5" is node01, node02, node03, node07, gpu5.
// A name may have several brackets ("rack[0-1]node[0-3]"); the last one runs first. Throws InvalidArgument naming
// `what` (the variable) and the part of the text that makes no sense, and for more than kMaxSlurmNodes nodes, or names
// of more than kMaxSlurmNameBytes together.
std::vector<std::string> expand_node_list(std::string_view text, std::string_view what);

// How many tasks each node has: "2(x3),1" is 2, 2, 2, 1. Throws likewise, also for 0 tasks.
std::vector<int> expand_task_counts(std::string_view text, std::string_view what);

// The variables of a task, each "" where it is not set.
struct SlurmVariables {
  std::string procid;          // SLURM_PROCID
  std::string num_tasks;       // SLURM_STEP_NUM_TASKS, else SLURM_NTASKS
  std::string localid;         // SLURM_LOCALID
  std::string tasks_per_node;  // SLURM_STEP_TASKS_PER_NODE
  std::string node_list;       // SLURM_STEP_NODELIST, else SLURM_JOB_NODELIST
  std::string job_id;          // SLURM_JOB_ID
  std::string step_id;         // SLURM_STEP_ID
  std::string cluster_name;    // SLURM_CLUSTER_NAME
  std::string restart_count;   // SLURM_RESTART_COUNT: how often the job was requeued
  std::string own_node;        // SLURMD_NODENAME
};

// One task of a step that has several.
struct SlurmStep {
  int rank = 0;
  int local_rank = 0;  // among the tasks of its node
  int size = 0;
  std::vector<std::string> nodes;  // in the order of their first tasks: rank 0 is on the first one
  std::string own_node;            // "" where Slurm does not say it
  std::string name;                // the same for all tasks, and no other step's: cluster, job, its restarts, step
};

// Nothing where this process is no task that srun has started beside others: outside of Slurm, in the shell of sbatch
// or salloc, which have the number of tasks and no step, and alone in its step. Throws InvalidArgument naming the
// variable that makes no sense, or those that contradict each other.
std::optional<SlurmStep> parse_slurm_step(const SlurmVariables& variables);

// How many tasks the Slurm job has in whose own shell, that of sbatch or salloc, this process is: it was started once,
// and not by srun for each task. 0 outside of such a shell, where Slurm has not been told a number, and where the
// variables make no sense.
int tasks_of_shell(const SlurmVariables& variables);

}  // namespace tessera::cluster
