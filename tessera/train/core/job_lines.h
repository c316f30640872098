// States of a job (cluster::Recovery) that have a line for each thing: a key, and what is known of that thing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::train {

// What stands behind the key; nullopt where no line begins with it.
std::optional<std::string> find_line(std::string_view state, std::string_view key);
// Returns the state with this line, in place of the one that its key has had.
std::string with_line(std::string_view state, std::string_view key, std::string_view value);

}  // namespace tessera::train
