// make_certificates(): an authority and what a job needs of it, for tests and for those who have none. Keys are ECDSA
// over P-256, and each file with a key can be read by its owner only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/files/file_system.h"
#include "tessera/cluster/tls/certificates.h"

namespace tessera::cluster {

struct NewCertificates {
  std::string directory;
  Password password;                  // of the PKCS#12 files
  std::vector<std::string> node_ids;  // each gets a certificate of its own, too
  int days = 365;
};

// Makes in the directory, which is made where it is missing:
//   ca.crt, ca.key      the authority
//   crl.pem             its list of revoked certificates, empty
//   server.p12          a scheduler's
//   client.p12          a worker's that may be any node
//   observer.p12        one that may ask for the status
//   NODE_ID.p12         a worker's that may be this node only; a / of the id is a _ in the name
//   config.json         where these are, as TESSERA_TLS_CONFIG takes it
// All of them or none; those who make or revoke in one directory at once take turns, by a lock in it (.lock). Where the
// process is killed there is no config.json, and the next one that makes certificates there removes what was made.
// Throws InvalidArgument where one of them is there already, IoError where they cannot be written or the lock is held.
void make_certificates(const NewCertificates& wanted, int64_t now_s, FileSystem& files = FileSystem::local());

// Puts the certificate of a file `NAME.p12` of the directory on its list of revoked ones. Returns whether it was not
// there before. Throws as reading them does, InvalidArgument where key, list and certificate are of several
// authorities, IoError where the lock is held.
bool revoke_certificate(const std::string& directory, const std::string& name, const Password& password, int64_t now_s);

// Waits until nobody else makes or revokes certificates in the directory, up to 10 s of the clock, and keeps the others
// waiting while the result lives. Throws IoError that names the process which holds it.
std::unique_ptr<FileLock> lock_certificates(FileSystem& files, const std::string& directory, Clock& clock);

}  // namespace tessera::cluster
