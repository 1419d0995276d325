package effect

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/event"
)

// Found is what resolving a Binding found: the fields of kube.Resolution.
type Found struct {
	Gone    bool   // no pod of this UID
	Node    string // where the pod is bound, "" for nowhere
	Version string // of the pod now
}

// BindDone returns the answer to a BindPod. Of an error that says neither that nothing was
// done nor that the API server rejects it, the outcome is unknown; where the API server said that it could not judge
// it, its words count if the pod turns out to be free: a webhook may be down for good.
func BindDone(o event.BindPod, err error) event.BindDone {
	done := event.BindDone{Row: o.Row, Outcome: event.BindUnknown}
	switch {
	case err == nil:
		done.Outcome = event.BindOK
	case rejected(err):
		done.Outcome, done.Why = event.BindRejected, Words(err)
	case apierrors.IsConflict(err):
		done.Outcome = event.BindConflict
	case apierrors.IsNotFound(err):
		done.Outcome = event.BindNotFound
	case notJudged(err):
		done.Why = Words(err)
	}
	return done
}

// notJudged reports whether the API server said that it could not judge a write, and may not be able to for a while: a
// webhook fails, or the credentials of the shard are not accepted.
func notJudged(err error) bool {
	_, said := answer(err)
	return said && (apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err))
}

// rejected reports whether the API server said no to a write, and is likely to say so again: an admission policy, a
// webhook that denies it, with whatever code, or a right that is missing. What a proxy in between says is no such
// answer.
func rejected(err error) bool {
	status, said := answer(err)
	switch status.Code {
	case 400, 403, 413, 422:
		return said
	}
	denied := strings.Contains(status.Message, "denied the request") || strings.Contains(status.Message, "denied request")
	return said && denied
}

// answer returns what the API server itself said, if an error is that.
func answer(err error) (status metav1.Status, said bool) {
	var of apierrors.APIStatus
	if !errors.As(err, &of) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return metav1.Status{}, false
	}
	return of.Status(), true
}

// wordsAtMost bounds the bytes of what the API server said that is passed on.
const wordsAtMost = 512

// Words returns what the API server said in an error, in one line of at most wordsAtMost bytes.
func Words(err error) string {
	says := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	if len(says) <= wordsAtMost {
		return says
	}
	const more = "..."
	return strings.ToValidUTF8(says[:wordsAtMost-len(more)], "") + more
}

// ResolveDone returns the answer to a ResolveBinding.
func ResolveDone(o event.ResolveBinding, found Found, err error) event.ResolveDone {
	done := event.ResolveDone{Row: o.Row, Outcome: event.ResolvedFree}
	switch {
	case err != nil:
		done.Outcome = event.ResolveRetry
	case found.Gone:
		done.Outcome = event.ResolvedGone
	case found.Node != "":
		done.Outcome, done.Node = event.ResolvedBound, found.Node
	default:
		done.Version = found.Version
	}
	return done
}

// MayEvict returns an error if a pod may not be evicted: the reservation that the core believes closed, or to condemn
// it, is not so.
func MayEvict(o event.EvictPod, evicts bool) error {
	if evicts || fault.On(fault.EvictOpen) || fault.On(fault.EvictUnread) || fault.On(fault.CondemnUnwritten) {
		return nil
	}
	return fmt.Errorf("pod %s/%s is not evicted: the reservation of its gang %s is not closed under attempt %d, and does not condemn it", o.Namespace, o.Name, o.GangUID, o.Attempt)
}

// StatusWritten returns the answer to a write of a status or of a condition, or to an eviction. Version is the
// object's after the write, "" where nobody needs it.
func StatusWritten(id uint64, version string, err error) event.StatusWritten {
	done := event.StatusWritten{ID: id, Outcome: event.StatusOK, ResourceVersion: version}
	switch {
	case err == nil:
		return done
	case apierrors.IsNotFound(err):
		done.Outcome = event.StatusGone
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		done.Outcome = event.StatusConflict
	default:
		done.Outcome = event.StatusFailed
	}
	done.Error = err.Error()
	return done
}

// VolumeWritten returns the answer to a SelectNode or a KeepVolume. What the API server rejects is no conflict: it
// may say so again.
func VolumeWritten(id uint64, version string, err error) event.VolumeWritten {
	done := event.VolumeWritten{ID: id, Outcome: event.StatusOK, Version: version}
	switch {
	case err == nil:
		return done
	case apierrors.IsNotFound(err):
		done.Outcome = event.StatusGone
	case apierrors.IsConflict(err):
		done.Outcome = event.StatusConflict
	default:
		done.Outcome = event.StatusFailed
	}
	done.Error = Words(err)
	return done
}
