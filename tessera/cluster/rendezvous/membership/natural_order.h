// The order of names with numbers in them: worker_2 before worker_10, 10.0.0.9 before 10.0.0.10.
#pragma once

#include <string_view>

namespace tessera::cluster::rendezvous {

// Tells whether `a` comes before `b`: numbers in them compare by value, all else by bytes. A total order.
bool is_before(std::string_view a, std::string_view b);

}  // namespace tessera::cluster::rendezvous
