// What a checkpoint makes of some values beside writing and reading them: statistics have as many rows as there are
// parts of a batch, learning rates may stay the model's own, and states that say nothing are left out.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/tensor.h"

namespace tessera::train {

// The names of moving statistics, which have a row for each part that a batch is normalised in.
std::set<std::string> statistics_of(const std::vector<nn::Parameter*>& parameters);
// Whether a stored statistic is of another number of parts than this model's, of that type.
bool is_regrouped(const checkpoint::StoredEntry& entry, const Type& type);
// Moving statistics of another number of parts: each part starts with the mean of all.
Tensor regroup(const Tensor& stored, const Type& wanted);

// Beside a whole statistic that has one row per rank, which is saved as the mean of the rows, they are saved by this
// name, so that as many ranks go on as they were. statistic_of_rows: the statistic's name; "" for any other name.
std::string name_of_rows(const std::string& statistic);
std::string statistic_of_rows(const std::string& name);

bool is_learning_rate(const std::string& name);
// Whether a learning rate stays as this model has it: where one of both is a table, or none at all because the rate is
// computed of the step. A fixed one goes on as it was saved.
bool keeps_own_rate(const std::string& name, const checkpoint::StoredEntry* stored, const Type* own);

// States that a checkpoint leaves out while they are zero.
bool may_be_missing(const std::string& name);

}  // namespace tessera::train
