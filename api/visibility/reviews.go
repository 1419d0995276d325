package visibility

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/api/v1beta1"
)

// Bounds of reviews.
const (
	freshPerSecond = 5 // tokens that have to be reviewed, from one address
	freshAtOnce    = 20
	reviewed       = 1024 // tokens, and accesses, that are remembered
	maxToken       = 16 << 10

	tokenFor  = time.Minute // a token that is good counts as good,
	accessFor = 10 * time.Second
	badFor    = 5 * time.Second // and one that is not as bad

	accountPrefix = "system:serviceaccount:" // of the name of a ServiceAccount, before its namespace
)

// shardsResource is the resource that rights to the status and to drains are about. The API server serves no such objects, as it serves no
// signers of certificates.k8s.io: so nobody has a right that was given for another purpose, except by a wildcard.
const shardsResource = "shards"

// Reviews asks the API server who users are and what they may do, and remembers the answers for a moment.
type Reviews struct {
	kube     kubernetes.Interface
	log      *slog.Logger
	fresh    *cache.LRUExpireCache // address -> *rate.Limiter
	tokens   *cache.LRUExpireCache // hash of a token -> user
	accesses *cache.LRUExpireCache // access -> bool
}

// NewReviews makes reviews by an API server. log is slog.Default() if nil.
func NewReviews(kube kubernetes.Interface, log *slog.Logger) *Reviews {
	return &Reviews{kube: kube, log: cmp.Or(log, slog.Default()),
		fresh: cache.NewLRUExpireCache(reviewed), tokens: cache.NewLRUExpireCache(reviewed), accesses: cache.NewLRUExpireCache(reviewed)}
}

// user is who asks, as the API server says: of a token, or by its aggregator.
type user struct {
	authentication.UserInfo
	key     string // under which answers about this very user are remembered
	token   string // empty if the aggregator forwards the request
	invalid bool   // the token is not good
}

// forwarded is a user whom the aggregator names. What is remembered of one is not remembered of another who only has
// the same name.
func forwarded(who authentication.UserInfo) *user {
	text, _ := json.Marshal(who) // maps are written in order; strings and lists of them can always be
	sum := sha256.Sum256(text)
	return &user{UserInfo: who, key: "user " + string(sum[:])}
}

// access is what a user wants to do.
type access struct {
	who string // key of a user
	to  authorization.ResourceAttributes
}

// bearer is a token.
type bearer struct{ text, key string }

// tokenOf returns the token in a header.
func tokenOf(header string) (bearer, error) {
	text, found := strings.CutPrefix(header, "Bearer ")
	if text = strings.TrimSpace(text); !found || text == "" || len(text) > maxToken {
		return bearer{}, problem{http.StatusUnauthorized, "a bearer token is needed, such as `kubectl create token NAME` makes"}
	}
	sum := sha256.Sum256([]byte(text))
	return bearer{text, string(sum[:])}, nil
}

// MayDrain asks the API server whether a user may drain a shard, and of a token first whose it is; nothing that was
// found out before counts. from is where the question comes from: an address, or another process of Basalt.
func (s *Reviews) MayDrain(ctx context.Context, from string, by Caller, shard string) (user string, err error) {
	who := forwarded(by.UserInfo)
	if by.Token != "" || by.Username == "" {
		t, err := tokenOf("Bearer " + by.Token)
		if err != nil {
			return "", err
		}
		if who, err = s.authenticate(ctx, from, t, true); err != nil {
			return "", err
		}
	}
	return who.Username, s.mayDrain(ctx, who, shard, true)
}

// mayDrain returns an error for a user who may not drain a shard.
func (s *Reviews) mayDrain(ctx context.Context, who *user, shard string, anew bool) error {
	return s.authorise(ctx, who, authorization.ResourceAttributes{Verb: "create", Group: v1beta1.GroupName,
		Resource: shardsResource, Subresource: "drain", Name: shard}, anew,
		fmt.Sprintf("user %q may not create %s.%s/drain for %q: the ClusterRole basalt-drain has the right for all shards", who.Username, shardsResource, v1beta1.GroupName, shard))
}

// authenticate asks the API server whose token it is; with anew even if it was asked a moment ago.
func (s *Reviews) authenticate(ctx context.Context, from string, token bearer, anew bool) (*user, error) {
	if known, ok := s.tokens.Get(token.key); ok && !(anew && !known.(*user).invalid) {
		return known.(*user).good()
	}
	if !takes(s.fresh, from, freshPerSecond, freshAtOnce) {
		return nil, tooMany
	}
	review, err := s.kube.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token.text}}, metav1.CreateOptions{})
	if err != nil {
		return nil, s.reviewFailed("tokenreviews.authentication.k8s.io", err)
	}
	who, ttl := &user{UserInfo: review.Status.User, key: token.key, token: token.text}, tokenFor
	if !review.Status.Authenticated {
		who.invalid, ttl = true, badFor
	}
	s.tokens.Add(token.key, who, ttl)
	return who.good()
}

// tenant returns whose turn it is when a user asks: that of the namespace that a ServiceAccount is of, for whoever may
// write there has as many of them as wanted, and else that of the user.
func (who *user) tenant() string {
	if account, is := strings.CutPrefix(who.Username, accountPrefix); is {
		namespace, _, _ := strings.Cut(account, ":")
		return "namespace " + namespace
	}
	return "user " + who.Username
}

func (who *user) good() (*user, error) {
	if who.invalid {
		return nil, problem{http.StatusUnauthorized, "the API server does not accept this token: it may be expired, revoked, or for another audience"}
	}
	return who, nil
}

// authorise asks the API server whether a user may do something; with anew even if it was asked a moment ago. denied is what a user is told
// who may not.
func (s *Reviews) authorise(ctx context.Context, who *user, to authorization.ResourceAttributes, anew bool,
	denied string) error {
	key := access{who.key, to}
	allowed, known := s.accesses.Get(key)
	if !known || anew {
		extra := map[string]authorization.ExtraValue{}
		for k, v := range who.Extra {
			extra[k] = authorization.ExtraValue(v)
		}
		review, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			User: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra, ResourceAttributes: &to,
		}}, metav1.CreateOptions{})
		if err != nil {
			return s.reviewFailed("subjectaccessreviews.authorization.k8s.io", err)
		}
		allowed = review.Status.Allowed
		s.accesses.Add(key, allowed, accessFor)
	}
	if !allowed.(bool) {
		return problem{http.StatusForbidden, denied}
	}
	return nil
}

// reviewFailed says that the API server did not review something.
func (s *Reviews) reviewFailed(what string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	if apierrors.IsForbidden(err) {
		s.log.Error("users' questions cannot be answered: Basalt's ServiceAccount may not create "+what, "error", err)
		return problem{http.StatusServiceUnavailable, "Basalt's ServiceAccount may not create " + what + ": an administrator has to grant it"}
	}
	return problem{http.StatusServiceUnavailable, fmt.Sprintf("the API server does not review: %v", err)}
}
