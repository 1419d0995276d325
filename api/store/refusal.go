package store

import (
	"errors"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reasons for which the control store refuses a request that it would take at another time. Nothing of the request was
// written. What may wait does: the operator is told by the log and by Options.Refused.
const (
	RefusedNoSpace    = "no_space"   // the quota of its database is used up
	RefusedCorrupt    = "corrupt"    // a member found that its data differs
	RefusedPermission = "permission" // this process's credentials have no right to it
	RefusedBehind     = "behind"     // one member answered with a revision that had passed, and others did not
)

// refusal classifies an error of etcd; "" for one that is no refusal.
func refusal(err error) string {
	is := func(known ...error) bool {
		for _, k := range known {
			if errors.Is(rpctypes.Error(err), k) || errors.Is(err, k) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return ""
	case is(rpctypes.ErrNoSpace):
		return RefusedNoSpace
	case is(rpctypes.ErrCorrupt):
		return RefusedCorrupt
	case is(rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision):
		return RefusedPermission
	case errors.Is(err, errBehind):
		return RefusedBehind
	}
	if code := status.Code(err); code == codes.PermissionDenied || code == codes.Unauthenticated {
		return RefusedPermission
	}
	return ""
}

// tooLarge reports whether etcd, or gRPC on the way to it, found a request too large: an etcd whose --max-request-bytes is
// lower than its default.
func tooLarge(err error) bool {
	if errors.Is(rpctypes.Error(err), rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrRequestTooLarge) {
		return true
	}
	return err != nil && strings.Contains(err.Error(), "message larger than max")
}

// remedy is what the log says to the operator.
var remedy = map[string]string{
	RefusedNoSpace:    "run basalt store defragment, which disarms the alarm; if that does not help, raise --quota-backend-bytes of etcd",
	RefusedCorrupt:    "replace the member that etcd names as corrupt, then disarm the alarm (etcdctl alarm disarm)",
	RefusedPermission: "give this process's user the right to read and write all keys, or a certificate of a user that has it",
	RefusedBehind:     "one member of the control store answers with old data: check and replace it",
}

// refusals counts refusals and logs them, each reason at most once in logRefusalsEvery.
type refusals struct {
	mu   sync.Mutex
	said map[string]time.Time
}

const logRefusalsEvery = 10 * time.Second

// refused notes that etcd refused a request, if that is what err says, and reports whether it does.
func (s *Store) refused(err error) bool {
	reason := refusal(err)
	if reason == "" {
		return false
	}
	if s.opts.Refused != nil {
		s.opts.Refused(reason)
	}
	r := &s.refusals
	r.mu.Lock()
	if r.said == nil {
		r.said = map[string]time.Time{}
	}
	last, said := r.said[reason]
	say := !said || time.Since(last) >= logRefusalsEvery
	if say {
		r.said[reason] = time.Now()
	}
	r.mu.Unlock()
	if say {
		s.log.Warn("control store refuses requests, retrying", "reason", reason, "error", err, "remedy", remedy[reason])
	}
	return true
}
