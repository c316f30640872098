// Data states: what the data set of each rank tells of random numbers that its source draws by itself
// (data/source.h), as one text in a checkpoint. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::train {

// Prints the states of the ranks, at least one of them. A state that all of them have is there once.
std::string print_data_states(const std::vector<std::string>& of_ranks);
// Finds the state of a rank among so many. nullopt where other ranks have saved states that differ, and where the text
// is none of print_data_states().
std::optional<std::string> find_data_state(std::string_view text, int rank, int num_ranks);

}  // namespace tessera::train
