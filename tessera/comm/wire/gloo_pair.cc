#include "tessera/comm/wire/gloo_pair.h"

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <sys/socket.h>

#include <cerrno>
#include <mutex>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

namespace tcp = ::gloo::transport::tcp;

// Both sides send a nonce; each answers the other's with a hash of both, bound to who proves it to whom.
class ProvenPair final : public tcp::Pair {
 public:
  ProvenPair(tcp::Context* context, tcp::Device* device, int peer, const PairProof& proof)
      : tcp::Pair(context, device, peer, context->getTimeout()),
        proof_(proof),
        own_rank_(context->rank),
        peer_rank_(peer),
        own_nonce_(random_bytes(kNonceBytes)) {}

  ~ProvenPair() override {
    // Before this part of the object is gone, Gloo's thread must have left it.
    const std::lock_guard<std::mutex> lock(m_);
    if (state_ != CLOSED) tcp::Pair::changeState(CLOSED);
  }

 protected:
  // Called with the pair's lock, by Gloo's thread.
  void handleReadWrite(int events) override {
    if (!is_proven_ && !advance()) return;
    tcp::Pair::handleReadWrite(events);
  }

  void changeState(state next) noexcept override {
    tcp::Pair::changeState(next);
    if (next == CONNECTED) send_nonce();
  }

  // Called with the pair's lock, by the thread that connects.
  void waitUntilConnected(std::unique_lock<std::mutex>& lock, bool use_timeout) override {
    tcp::Pair::waitUntilConnected(lock, use_timeout);
    send_nonce();
    const bool is_done = cv_.wait_for(lock, proof_.time_limit, [this] {
      throwIfException();
      return is_proven_;
    });
    if (!is_done) signalAndThrowException("rank " + std::to_string(peer_rank_) + " was not proven in time");
  }

  void verifyConnected() override {
    tcp::Pair::verifyConnected();
    check(is_proven_, "tensors go to proven pairs");
  }

 private:
  // Into a fresh connection, whose buffer is empty.
  bool send_bytes(std::string_view bytes) const noexcept {
    ssize_t count;
    do {
      count = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    return count == static_cast<ssize_t>(bytes.size());
  }

  void send_nonce() noexcept {
    if (has_sent_nonce_ || state_ != CONNECTED) return;
    has_sent_nonce_ = send_bytes(own_nonce_);  // otherwise the connection is gone, as the reader will find
  }

  // Reads what has come of the peer's nonce and hash. True when that is proven.
  bool advance() {
    send_nonce();
    while (!is_proven_) {
      char buffer[kNonceBytes + kHashBytes];
      const size_t wanted = kNonceBytes + kHashBytes - heard_.size();
      const ssize_t count = ::recv(fd_, buffer, wanted, MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
      if (count <= 0) return give_up("closed the connection");
      heard_.append(buffer, static_cast<size_t>(count));
      const std::string_view peer_nonce = std::string_view(heard_).substr(0, kNonceBytes);
      if (heard_.size() >= kNonceBytes && !has_sent_hash_) {
        has_sent_hash_ = true;
        if (!send_bytes(hash(own_rank_, peer_rank_, own_nonce_, peer_nonce))) return give_up("takes no bytes");
      }
      if (heard_.size() < kNonceBytes + kHashBytes) continue;
      if (!is_equal_hash(std::string_view(heard_).substr(kNonceBytes),
                         hash(peer_rank_, own_rank_, peer_nonce, own_nonce_))) {
        return give_up("does not know the job's secret");
      }
      is_proven_ = true;
      cv_.notify_all();
    }
    return true;
  }

  bool give_up(const std::string& reason) {
    signalException("what connected in place of rank " + std::to_string(peer_rank_) + " " + reason);
    return false;
  }

  std::string hash(int from, int to, std::string_view from_nonce, std::string_view to_nonce) const {
    return proof_.secret.hash({"tessera pair 1", std::to_string(proof_.attempt), std::to_string(proof_.size),
                               std::to_string(from), std::to_string(to), from_nonce, to_nonce});
  }

  const PairProof& proof_;  // the context's
  int own_rank_;
  int peer_rank_;
  std::string own_nonce_;
  std::string heard_;
  bool has_sent_nonce_ = false;
  bool has_sent_hash_ = false;
  bool is_proven_ = false;
};

class ProvenContext final : public tcp::Context {
 public:
  ProvenContext(std::shared_ptr<tcp::Device> device, int rank, int size, PairProof proof)
      : tcp::Context(std::move(device), rank, size), proof_(std::move(proof)) {}
  ~ProvenContext() override { pairs_.clear(); }  // they look at proof_

  std::unique_ptr<::gloo::transport::Pair>& createPair(int peer) override {
    auto& place = pairs_[static_cast<size_t>(peer)];
    place = std::make_unique<ProvenPair>(this, device_.get(), peer, proof_);
    return place;
  }

 private:
  PairProof proof_;
};

class ProvenDevice final : public tcp::Device {
 public:
  ProvenDevice(const tcp::attr& attribute, PairProof proof) : tcp::Device(attribute), proof_(std::move(proof)) {}

  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override {
    auto self = std::static_pointer_cast<tcp::Device>(shared_from_this());
    return std::make_shared<ProvenContext>(std::move(self), rank, size, proof_);
  }

 private:
  PairProof proof_;
};

}  // namespace

std::shared_ptr<::gloo::transport::Device> make_proven_device(const std::string& address, const PairProof& proof) {
  return std::make_shared<ProvenDevice>(tcp::CreateDeviceAttr(tcp::attr(address.c_str())), proof);
}

}  // namespace tessera::comm
