#include "tessera/session/messages/message_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/comm/stretch_receiver.h"
#include "tessera/session/messages/rows_in_place.h"
#include "tessera/tensor/alignment.h"

namespace tessera::session {
namespace {

// Memory of the host for these values, row-major, which they are moved to.
std::shared_ptr<std::byte> move_to_host(std::vector<TensorView>& values, Device& device) {
  int64_t bytes = 0;
  const auto take = [&](const TensorView& v) { return std::exchange(bytes, bytes + aligned(v.size_bytes())); };
  std::vector<int64_t> offsets;
  for (const auto& v : values) offsets.push_back(take(v));
  auto memory = device.allocate_on_host(bytes);
  for (size_t i = 0; i < values.size(); ++i) values[i] = {memory.get() + offsets[i], values[i].type()};
  return memory;
}

// The stretches of a view that lie in one piece, in its order.
std::vector<TensorView> stretches_of(const TensorView& view) {
  int outer = view.shape.ndim();
  int64_t count = 1;
  while (outer > 0 && (view.shape[outer - 1] == 1 || view.strides[outer - 1] == count)) {
    count *= view.shape[--outer];
  }
  std::vector<TensorView> stretches;
  if (view.num_elements() == 0) return stretches;
  std::vector<int64_t> at(static_cast<size_t>(outer), 0);
  const auto element = static_cast<int64_t>(size_bytes(view.dtype));
  for (int64_t i = 0; i < view.num_elements() / count; ++i) {
    int64_t offset = 0;
    for (int dim = 0; dim < outer; ++dim) offset += at[static_cast<size_t>(dim)] * view.strides[dim];
    stretches.emplace_back(static_cast<std::byte*>(view.data) + offset * element, Type{view.dtype, {count}});
    for (int dim = outer; dim-- > 0;) {
      if (++at[static_cast<size_t>(dim)] < view.shape[dim]) break;
      at[static_cast<size_t>(dim)] = 0;
    }
  }
  return stretches;
}

// Between a device's memory and row-major memory of the host.
void copy_stretches(Queue& queue, const TensorView& on_device, const TensorView& on_host, CopyWay way) {
  auto* host = static_cast<std::byte*>(on_host.data);
  for (const auto& stretch : stretches_of(on_device)) {
    const bool leaves = way == CopyWay::kToHost;
    queue.copy(leaves ? host : stretch.data, leaves ? stretch.data : host, stretch.size_bytes(), way);
    host += stretch.size_bytes();
  }
}

using Places = std::vector<TensorView>;

// How many there are: up to the last that is not negative.
template <typename Number>
int64_t count_numbers(const TensorView& numbers) {
  const auto* all = numbers.as<Number>();
  int64_t count = numbers.num_elements();
  while (count > 0 && all[count - 1] < 0) --count;
  return count;
}

int64_t count_rows(const TensorView& numbers) {
  return numbers.dtype == DType::kI32 ? count_numbers<int32_t>(numbers) : count_numbers<int64_t>(numbers);
}

template <typename Number>
void require_rows(const TensorView& numbers, const CountedRows& counted, const comm::Communicator& pair) {
  const auto* all = numbers.as<Number>();
  const auto* end = all + numbers.num_elements();
  const auto* wrong = std::find_if(all, end, [&](Number n) { return n < -1 || n >= counted.num_rows; });
  if (wrong == end) return;
  throw IoError(
      "rank {} sends rank {}, a parameter server, gradients of rows of \"{}\": the number {} at place {} is none of "
      "the table's {} rows. The message is damaged; a job that is started again goes on from its newest checkpoint",
      pair.ranks()[0], pair.ranks()[1], counted.table, *wrong, wrong - all, counted.num_rows);
}

// What travels of the rows; the numbers are there.
TensorView rows_there(const TensorView& rows, const TensorView& numbers) {
  const int64_t capacity = numbers.num_elements();
  const int64_t elements = capacity == 0 ? 0 : rows.num_elements() / capacity * count_rows(numbers);
  return {rows.data, Type{rows.dtype, {elements}}};
}

void receive_rows(comm::Communicator& pair, const Places& values, const CountedRows& counted, const std::string& who) {
  const TensorView& numbers = values[counted.numbers];
  if (numbers.dtype == DType::kI32) {
    require_rows<int32_t>(numbers, counted, pair);
  } else {
    require_rows<int64_t>(numbers, counted, pair);
  }
  const TensorView& rows = values[counted.rows];
  const TensorView there = rows_there(rows, numbers);
  pair.receive(there.data, there.num_elements(), there.dtype, 0, who);
  if (!counted.clears_rest) return;
  const int64_t rest = rows.size_bytes() - there.size_bytes();
  if (rest > 0) std::memset(static_cast<std::byte*>(rows.data) + there.size_bytes(), 0, static_cast<size_t>(rest));
}

// Sends the rows of one slot that a receiver wants, once each.
class ListedSender {
 public:
  ListedSender(const TensorView& rows, const TensorView& places, const std::vector<int64_t>& begins)
      : rows_(rows),
        places_(places),
        begins_(begins),
        own_(places.type()),
        place_of_(static_cast<size_t>(rows.shape[0]), -1),
        order_(static_cast<size_t>(std::min(rows.shape[0], places.num_elements()))) {}

  void operator()(comm::Communicator& pair, const std::string& who) {
    const int64_t count = list();
    pair.send(own_.view().data, own_.num_elements(), DType::kI32, 1, who);
    const int64_t size = rows_.shape[1];
    pair.send(rows_in_order(count), count * size, rows_.dtype, 1, who);
  }

 private:
  // Gives the places of the message, and which rows it has. Returns how many.
  int64_t list() {
    copy_elements(places_, own_.view());
    const auto own = own_.values<int32_t>();
    const size_t per_begin = begins_.empty() ? 1 : own.size() / begins_.size();
    int32_t count = 0;
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i] < 0) continue;
      const int64_t row = begins_[i / per_begin] + own[i];
      int32_t& place = place_of_[static_cast<size_t>(row)];
      if (place < 0) {
        order_[static_cast<size_t>(count)] = row;
        place = count++;
      }
      own[i] = place;
    }
    // Other workers' rows are many more: only those of the message are looked at.
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) place_of_[static_cast<size_t>(order_[i])] = -1;
    return count;
  }

  // Where they lie one behind the other already, as those of one worker do, they go from there.
  const void* rows_in_order(int64_t count) {
    const auto element = static_cast<int64_t>(size_bytes(rows_.dtype));
    const int64_t row_bytes = rows_.shape[1] * element;
    const int64_t stride = rows_.strides[0] * element;
    const auto* from = static_cast<const std::byte*>(rows_.data);
    bool is_run = stride == row_bytes;
    for (int64_t i = 1; is_run && i < count; ++i) {
      is_run = order_[static_cast<size_t>(i)] == order_[static_cast<size_t>(i) - 1] + 1;
    }
    if (count == 0) return from;
    if (is_run) return from + order_[0] * stride;
    packed_.resize(static_cast<size_t>(count * row_bytes));
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(packed_.data() + i * row_bytes, from + order_[static_cast<size_t>(i)] * stride,
                  static_cast<size_t>(row_bytes));
    }
    return packed_.data();
  }

  TensorView rows_;
  TensorView places_;
  std::vector<int64_t> begins_;
  Tensor own_;                     // the places of the message
  std::vector<int32_t> place_of_;  // of each row, in the message; -1: it is not in it, as none is between messages
  std::vector<int64_t> order_;     // which row comes when in the message
  std::vector<std::byte> packed_;
};

// Receives rows once each, and puts them to all places that want them.
class ListedReceiver {
 public:
  ListedReceiver(const TensorView& rows, std::string table)
      : rows_(rows),
        table_(std::move(table)),
        row_bytes_(rows.shape.back() * static_cast<int64_t>(size_bytes(rows.dtype))),
        places_(static_cast<size_t>(row_bytes_ == 0 ? 0 : rows.size_bytes() / row_bytes_)) {}

  void operator()(comm::Communicator& pair, const std::string& who) {
    pair.receive(places_.data(), std::ssize(places_), DType::kI32, 0, who);
    const int64_t count = count_rows(pair);
    const int64_t elements = count * rows_.shape.back();
    bytes_ = count * row_bytes_;
    are_spread_ = false;
    if (auto* reaches = dynamic_cast<comm::StretchReceiver*>(&pair); reaches != nullptr) {
      const auto take = [this](const std::byte* from, int64_t begin, int64_t size) { this->take(from, begin, size); };
      reaches->receive_stretches(take, elements, rows_.dtype, 0, who);
    } else {
      pair.receive(rows_.data, elements, rows_.dtype, 0, who);
    }
    if (!are_spread_) spread();
  }

 private:
  int64_t count_rows(const comm::Communicator& pair) const {
    int32_t next = 0;
    for (size_t i = 0; i < places_.size(); ++i) {
      const int32_t place = places_[i];
      if (place == next) {
        ++next;
      } else if (place < -1 || place > next) {
        throw IoError(
            "rank {}, a parameter server, sends rank {} rows of \"{}\": place {} wants row {} of the message, where {} "
            "or an earlier one must come. The message is damaged; a job that is started again goes on from its newest "
            "checkpoint",
            pair.ranks()[0], pair.ranks()[1], table_, i, place, next);
      }
    }
    return next;
  }

  // Whole, the rows go from where they lie to their places; else to the front first.
  void take(const std::byte* from, int64_t begin, int64_t size) {
    if (size < bytes_) {
      std::memcpy(static_cast<std::byte*>(rows_.data) + begin, from, static_cast<size_t>(size));
      return;
    }
    for (size_t i = 0; i < places_.size(); ++i) put(i, from);
    are_spread_ = true;
  }

  // From the front to their places, from the last one on: no row lies behind the first place that wants it, so that
  // none is written over before it has been read. Of rows that all differ each is where it belongs.
  void spread() {
    for (size_t i = places_.size(); i-- > 0;) put(i, static_cast<const std::byte*>(rows_.data));
  }

  void put(size_t i, const std::byte* rows) {
    const auto size = static_cast<size_t>(row_bytes_);
    auto* const to = static_cast<std::byte*>(rows_.data) + i * size;
    if (places_[i] < 0) {
      std::memset(to, 0, size);
    } else if (const auto* from = rows + static_cast<size_t>(places_[i]) * size; from != to) {
      std::memcpy(to, from, size);
    }
  }

  TensorView rows_;
  std::string table_;
  int64_t row_bytes_;
  std::vector<int32_t> places_;
  int64_t bytes_ = 0;  // of the rows that come
  bool are_spread_ = false;
};

// How the values travel that are listed, by their number.
using Listed = std::map<size_t, std::function<void(comm::Communicator& pair, const std::string& who)>>;

Listed travel_listed(bool sends, const Places& values, const std::vector<ListedRows>& listed, size_t slot) {
  Listed ways;
  for (const auto& rows : listed) {
    if (const auto& in_place = rows.in_place) {
      if (sends) {
        ways[rows.rows] = RowsInPlaceSender({.table = values[rows.rows],
                                             .own = in_place->own,
                                             .first_element = in_place->first_element,
                                             .says_none = in_place->says_none,
                                             .numbers = in_place->numbers[slot],
                                             .places = rows.places[slot],
                                             .begins = rows.begins});
      } else {
        ways[rows.rows] = RowsInPlaceReceiver(values[rows.rows], in_place->num_elements, rows.table);
      }
    } else if (sends) {
      ways[rows.rows] = ListedSender(values[rows.rows], rows.places[slot], rows.begins);
    } else {
      ways[rows.rows] = ListedReceiver(values[rows.rows], rows.table);
    }
  }
  return ways;
}

void travel(comm::Communicator& pair, bool sends, const Places& values, const std::vector<CountedRows>& counted,
            const Listed& listed, const std::string& who) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (const auto way = listed.find(i); way != listed.end()) {
      way->second(pair, who);
      continue;
    }
    const auto rows = std::ranges::find(counted, i, &CountedRows::rows);
    const bool is_counted = rows != counted.end();
    if (!sends && is_counted) {
      receive_rows(pair, values, *rows, who);
      continue;
    }
    const TensorView v = is_counted ? rows_there(values[i], values[rows->numbers]) : values[i];
    if (sends) {
      pair.send(v.data, v.num_elements(), v.dtype, 1, who);
    } else {
      pair.receive(v.data, v.num_elements(), v.dtype, 0, who);
    }
  }
}

// From or to where they lie in the host's memory; pieces with gaps by way of dense copies. Listed rows go from where
// they lie, gaps or not.
std::function<void()> travel_on_host(comm::Communicator& pair, bool sends, const Places& places,
                                     const std::vector<CountedRows>& counted, const std::vector<ListedRows>& listed,
                                     size_t slot, const std::string& who) {
  Places values = places;
  std::vector<std::pair<TensorView, Tensor>> copies;
  for (size_t i = 0; i < values.size(); ++i) {
    auto& v = values[i];
    const auto rows = std::ranges::find(listed, i, &ListedRows::rows);
    const bool goes_as_it_is = sends && rows != listed.end();
    // Each of several senders fills its own places, which a copy back would undo.
    check(sends || rows == listed.end() || !rows->in_place || v.is_dense(), "rows that are read in place come densely");
    if (goes_as_it_is || v.is_dense() || v.num_elements() == 0) continue;
    copies.emplace_back(v, Tensor(v.type()));
    v = copies.back().second.view();
  }
  return [&pair, sends, values, counted, copies, who, ways = travel_listed(sends, values, listed, slot)] {
    for (const auto& [place, copy] : copies) {
      if (sends) copy_elements(place, copy.view());
    }
    travel(pair, sends, values, counted, ways, who);
    for (const auto& [place, copy] : copies) {
      if (!sends) copy_elements(copy.view(), place);
    }
  };
}

}  // namespace

MessageChannel make_message_channel(comm::Communicator& pair, bool sends, const std::vector<Places>& by_slot,
                                    Device* device, int rank, const std::string& who, const MessageTimes& times,
                                    const std::vector<CountedRows>& counted, const std::vector<ListedRows>& listed) {
  check(device == nullptr || listed.empty(), "rows that are sent once each lie in the host's memory");
  MessageChannel channel;
  timeline::SpanName name{.kind = timeline::SpanKind::kMessage, .text = times.way};
  for (const auto& v : by_slot.empty() ? Places{} : by_slot.front()) name.bytes += v.size_bytes();
  // Both sides name what comes to the receiver's places.
  for (const auto& rows : listed) {
    if (!sends) continue;
    const TensorView& all = by_slot.front()[rows.rows];
    const int64_t size = rows.in_place ? rows.in_place->size : all.shape[1];
    name.bytes += rows.places[0].num_elements() * size * static_cast<int64_t>(size_bytes(all.dtype)) - all.size_bytes();
  }
  name.ranks = pair.ranks();
  name.number = 0;  // the messages of a step are told apart by their order
  const auto timed = std::make_shared<timeline::TimedWork>(
      times.recorder, fmt::format("{} {}", sends ? "sends" : "receives", times.way), name);
  channel.lane = std::make_unique<executor::CommLane>(rank);
  if (device != nullptr) channel.queue = device->make_queue();
  const auto add = [&channel, &timed](std::function<void()> task) {
    channel.tasks.push_back(
        std::make_shared<const std::function<void()>>([timed, task = std::move(task)] { timed->run(task); }));
  };
  for (size_t slot = 0; slot < by_slot.size(); ++slot) {
    const Places& places = by_slot[slot];
    if (device == nullptr) {
      add(travel_on_host(pair, sends, places, counted, listed, slot, who));
      continue;
    }
    // Messages come from, and go to, memory of the host.
    auto values = places;
    const auto staging = move_to_host(values, *device);
    Event* const may_start = channel.may_start.emplace_back(device->make_event()).get();
    add([=, &pair, &queue = *channel.queue] {
      may_start->synchronize();
      if (!sends) travel(pair, sends, values, counted, {}, who);
      for (size_t i = 0; i < values.size(); ++i) {
        copy_stretches(queue, places[i], values[i], sends ? CopyWay::kToHost : CopyWay::kToDevice);
      }
      queue.synchronize();
      if (sends) travel(pair, sends, values, counted, {}, who);
      (void)staging;  // lives as long as the task
    });
  }
  return channel;
}

}  // namespace tessera::session
