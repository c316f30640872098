#include "tessera/comm/hierarchy.h"

#include <algorithm>
#include <map>

#include "tessera/base/integers.h"
#include "tessera/comm/group_calls.h"
#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

// Where the ranks of a group are: group ranks by host, hosts in the order of their first ranks.
struct Placement {
  Placement(const GroupInfo& group, const std::vector<int>& host_of) {
    std::map<int, int> index_of_host;
    for (int r = 0; r < static_cast<int>(group.ranks.size()); ++r) {
      const int host = host_of[as_index(group.ranks[as_index(r)])];
      const auto [it, is_new] = index_of_host.emplace(host, static_cast<int>(hosts.size()));
      if (is_new) hosts.emplace_back();
      place.push_back({it->second, static_cast<int>(hosts[as_index(it->second)].size())});
      hosts[as_index(it->second)].push_back(r);
    }
    width = size_of_host(0);
    for (int h = 1; h < num_hosts(); ++h) width = std::min(width, size_of_host(h));
  }
  int num_hosts() const { return static_cast<int>(hosts.size()); }
  int size_of_host(int host) const { return static_cast<int>(hosts[as_index(host)].size()); }
  // The rank of `host` that brings and takes what `rank` has to do with that host: work is spread over its ranks.
  int carrier(int rank, int host) const {
    return hosts[as_index(host)][as_index(place[as_index(rank)].local % size_of_host(host))];
  }

  struct Place {
    int host = 0;
    int local = 0;  // rank within the host
  };
  std::vector<std::vector<int>> hosts;
  std::vector<Place> place;  // by group rank
  int width = 0;             // ranks of the smallest host
};

// The same group seen as some of its ranks. `part` tells the groups that a group is made of apart.
GroupInfo subgroup(const GroupInfo& group, const std::vector<int>& members, int part) {
  GroupInfo sub{.name = group.name, .number = group.number, .part = part};
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == group.rank) sub.rank = static_cast<int>(i);
    sub.ranks.push_back(group.ranks[as_index(members[i])]);
  }
  return sub;
}

class HierarchicalCommunicator final : public GroupCalls {
 public:
  HierarchicalCommunicator(const GroupInfo& group, const Placement& placement, Transport& within, Transport& between)
      : GroupCalls(group),
        placement_(placement),
        host_(placement.place[as_index(group.rank)].host),
        local_(placement.place[as_index(group.rank)].local),
        local_counts_(placement.hosts[as_index(host_)].size()),
        sent_counts_(group.ranks.size()),
        received_counts_(group.ranks.size()),
        sources_(placement.hosts.size()) {
    const GroupInfo neighbours = subgroup(group, placement.hosts[as_index(host_)], 1 + host_);
    host_group_ =
        neighbours.ranks.size() > 1 ? within.create_communicator(neighbours) : make_single_communicator(neighbours);
    for (int j = 0; j < placement.width; ++j) {
      std::vector<int> members;
      for (const auto& host : placement.hosts) members.push_back(host[as_index(j)]);
      if (j == local_) across_ = between.create_communicator(subgroup(group, members, 1 + placement.num_hosts() + j));
    }
    all_ = between.create_communicator(group);
  }

  void share_core() override { host_group_->share_core(); }
  int64_t wait_without_deadline() override {
    if (across_ != nullptr) across_->wait_without_deadline();
    return std::max(host_group_->wait_without_deadline(), all_->wait_without_deadline());
  }
  int64_t deadline_ms() const override { return std::max(host_group_->deadline_ms(), all_->deadline_ms()); }
  JobState* job() override { return all_->job(); }
  void set_driver(Driver driver) override { host_group_->set_driver(driver); }

 protected:
  // Each rank of a host has the host's sum of one share, adds those of the other hosts, and hands the result round.
  void run_all_reduce(CallHeader& header, void* data, int64_t count) override {
    int64_t offset = 0;
    for (int j = 0; j < static_cast<int>(local_counts_.size()); ++j) {
      local_counts_[as_index(j)] = j < placement_.width ? share_of(count, placement_.width, j).count() : 0;
      if (j < local_) offset += local_counts_[as_index(j)];
    }
    std::byte* own = at(data, offset * element(header));
    host_group_->reduce_scatter(data, own, local_counts_, header.dtype, header.op, header.who);
    if (across_ != nullptr) {
      across_->all_reduce(own, local_counts_[as_index(local_)], header.dtype, header.op, header.who);
    }
    host_group_->all_gather(own, data, local_counts_, header.dtype, header.who);
  }

  // The host's sums of all parts are spread over its ranks, which send each part to its rank.
  void run_reduce_scatter(CallHeader& header, const void* in, void* out, std::span<const int64_t> counts) override {
    const int64_t own_bytes = counts[as_index(rank())] * element(header);
    std::byte* packed = room(packed_, total(counts) * element(header));
    for_each_carried(counts, [&](int part, int64_t offset) {
      copy_bytes(packed + offset * element(header), at(in, offset_of(counts, part) * element(header)),
                 counts[as_index(part)] * element(header));
    });
    std::byte* sums = room(sums_, local_counts_[as_index(local_)] * element(header));
    host_group_->reduce_scatter(packed, sums, local_counts_, header.dtype, header.op, header.who);
    for (int r = 0; r < size(); ++r) {
      sent_counts_[as_index(r)] = placement_.carrier(r, host_) == rank() ? counts[as_index(r)] : 0;
      received_counts_[as_index(r)] = placement_.carrier(rank(), host_of(r)) == r ? counts[as_index(rank())] : 0;
    }
    std::byte* received = room(received_, own_bytes * placement_.num_hosts());
    all_->all_to_all(sums, sent_counts_, received, received_counts_, header.dtype, header.who);
    for (int h = 0; h < placement_.num_hosts(); ++h) {
      sources_[as_index(h)] = received + offset_of(received_counts_, placement_.carrier(rank(), h)) * element(header);
    }
    reduce_in_order(out, sources_, counts[as_index(rank())], header.dtype, header.op);
  }

  // Each part goes to one rank of every other host; the ranks of a host then share what they have.
  void run_all_gather(CallHeader& header, const void* in, void* out, std::span<const int64_t> counts) override {
    const int64_t own_bytes = counts[as_index(rank())] * element(header);
    std::byte* copies = room(sums_, own_bytes * placement_.num_hosts());
    for (int h = 0; h < placement_.num_hosts(); ++h) copy_bytes(copies + h * own_bytes, in, own_bytes);
    for (int r = 0; r < size(); ++r) {
      sent_counts_[as_index(r)] = placement_.carrier(rank(), host_of(r)) == r ? counts[as_index(rank())] : 0;
      received_counts_[as_index(r)] = placement_.carrier(r, host_) == rank() ? counts[as_index(r)] : 0;
    }
    std::byte* carried = room(received_, total(received_counts_) * element(header));
    all_->all_to_all(copies, sent_counts_, carried, received_counts_, header.dtype, header.who);
    std::byte* packed = room(packed_, total(counts) * element(header));
    for_each_carried(counts, [](int, int64_t) {});
    host_group_->all_gather(carried, packed, local_counts_, header.dtype, header.who);
    for_each_carried(counts, [&](int part, int64_t offset) {
      copy_bytes(at(out, offset_of(counts, part) * element(header)), packed + offset * element(header),
                 counts[as_index(part)] * element(header));
    });
  }

  void run_broadcast(CallHeader& header, void* data, int64_t count) override {
    const auto [root_host, root_local] = placement_.place[as_index(header.root)];
    for (int h = 0; h < placement_.num_hosts(); ++h) {
      if (h == root_host) continue;
      const int first = placement_.hosts[as_index(h)].front();
      if (rank() == header.root) all_->send(data, count, header.dtype, first, header.who);
      if (rank() == first) all_->receive(data, count, header.dtype, header.root, header.who);
    }
    host_group_->broadcast(data, count, header.dtype, host_ == root_host ? root_local : 0, header.who);
  }

  void run_all_to_all(CallHeader& header, const void* in, std::span<const int64_t> in_counts, void* out,
                      std::span<const int64_t> out_counts) override {
    all_->all_to_all(in, in_counts, out, out_counts, header.dtype, header.who);
  }

  void run_barrier(CallHeader& header) override {
    host_group_->barrier(header.who);
    if (across_ != nullptr) across_->barrier(header.who);
    host_group_->barrier(header.who);
  }

  void run_send(CallHeader& header, int to, const void* data, int64_t bytes) override {
    const auto [host, local] = placement_.place[as_index(to)];
    const int64_t count = bytes / element(header);
    if (host == host_) return host_group_->send(data, count, header.dtype, local, header.who);
    all_->send(data, count, header.dtype, to, header.who);
  }

  void run_receive(CallHeader& header, int from, void* data, int64_t bytes) override {
    const auto [host, local] = placement_.place[as_index(from)];
    const int64_t count = bytes / element(header);
    if (host == host_) return host_group_->receive(data, count, header.dtype, local, header.who);
    all_->receive(data, count, header.dtype, from, header.who);
  }

 private:
  static int64_t element(const CallHeader& header) { return static_cast<int64_t>(size_bytes(header.dtype)); }
  int host_of(int rank) const { return placement_.place[as_index(rank)].host; }

  static std::byte* room(std::vector<std::byte>& buffer, int64_t bytes) {
    if (buffer.size() < static_cast<size_t>(bytes)) buffer.resize(static_cast<size_t>(bytes));
    return buffer.data();
  }

  // Lays all parts side by side, those that one rank of this host carries together, in the order of the group: calls
  // f(part, offset) for each, and sets local_counts_.
  template <typename F>
  void for_each_carried(std::span<const int64_t> counts, F&& f) {
    int64_t offset = 0;
    const auto& members = placement_.hosts[as_index(host_)];
    for (size_t j = 0; j < members.size(); ++j) {
      const int64_t begin = offset;
      for (int part = 0; part < size(); ++part) {
        if (placement_.carrier(part, host_) != members[j]) continue;
        f(part, offset);
        offset += counts[as_index(part)];
      }
      local_counts_[j] = offset - begin;
    }
  }

  Placement placement_;
  int host_;
  int local_;
  std::unique_ptr<Communicator> host_group_;  // the ranks of this host
  std::unique_ptr<Communicator> across_;      // one rank of each host; null for ranks that not every host has
  std::unique_ptr<Communicator> all_;
  std::vector<int64_t> local_counts_;
  std::vector<int64_t> sent_counts_;
  std::vector<int64_t> received_counts_;
  std::vector<const void*> sources_;
  std::vector<std::byte> packed_;
  std::vector<std::byte> sums_;
  std::vector<std::byte> received_;
};

class HierarchicalTransport final : public Transport {
 public:
  HierarchicalTransport(std::unique_ptr<Transport> within, std::unique_ptr<Transport> between, std::vector<int> host_of)
      : within_(std::move(within)), between_(std::move(between)), host_of_(std::move(host_of)) {}

  std::string name() const override { return within_->name() + " and " + between_->name(); }

  std::unique_ptr<Communicator> create_communicator(const GroupInfo& group) override {
    const Placement placement(group, host_of_);
    if (placement.num_hosts() == 1) return within_->create_communicator(group);
    if (placement.num_hosts() == static_cast<int>(group.ranks.size())) return between_->create_communicator(group);
    return std::make_unique<HierarchicalCommunicator>(group, placement, *within_, *between_);
  }

  std::shared_ptr<void> allocate(size_t bytes) override { return within_->allocate(bytes); }
  void leave() override {
    within_->leave();
    between_->leave();
  }

 private:
  std::unique_ptr<Transport> within_;
  std::unique_ptr<Transport> between_;
  std::vector<int> host_of_;
};

}  // namespace

std::unique_ptr<Transport> make_hierarchical_transport(std::unique_ptr<Transport> within,
                                                       std::unique_ptr<Transport> between, std::vector<int> host_of) {
  return std::make_unique<HierarchicalTransport>(std::move(within), std::move(between), std::move(host_of));
}

}  // namespace tessera::comm
