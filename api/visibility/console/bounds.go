package console

import "time"

// Bounds of what viewers cost.
const (
	maxSessions    = 1000 // in all,
	maxOwnSessions = 20   // and of one user: the oldest ends
	maxStreams     = 500  // in all, and
	maxOwnStreams  = 8    // of one session
	ownPerSecond   = 20   // requests of a session
	ownAtOnce      = 60
	ownUnderWay    = 12 // at the same time
	loginPerSecond = 10 // of everybody
	loginAtOnce    = 40
	askPerSecond   = 20 // questions to Basalt of everybody
	askAtOnce      = 40
	ownAsks        = 3 // of one user at the same time, however many sessions he has

	askWithin  = 6 * time.Second // an answer of Basalt's comes, or the page goes without
	pageWithin = 15 * time.Second
	reviewFor  = 10 * time.Second // a review counts
	maxReviews = 256              // that are remembered of a session

	streamAgain = 3 * time.Second // a browser connects again after
	renderShare = 20              // a stream waits so many times as long as its page took,
	allShare    = 2               // times the streams that there are: all of them take half a core, whatever changes
	maxMain     = 2 << 20         // bytes of a page in a stream
	writeWithin = 10 * time.Second

	maxToken      = 16 << 10
	maxBody       = 64 << 10
	maxQuery      = 4 << 10
	maxHeaders    = 64 << 10
	maxNamespaces = 8      // that one page shows, or that a laptop follows
	maxGangs      = 200000 // that are kept
	maxQueues     = 20000

	rowsOfPage   = 100
	rowsOfQueues = 250 // of a tree that is not asked for whole
	maxTree      = 2000
	maxPods      = 100
	maxEvents    = 50
	maxSingles   = 100
	maxNodes     = 100000
	nodesFor     = 30 * time.Second // a list of nodes counts, and
	nodesShare   = 100              // so many times as long as it took,
	statusFor    = 5 * time.Second  // and a status of Basalt
	podsFor      = 2 * time.Second  // pods and events of a gang count if it changed,
	podsAgain    = time.Minute      // and otherwise
	singlesFor   = 30 * time.Second // pods without a PodGroup count, of a namespace, for all who may list them
	maxSingleOf  = 256              // namespaces of which they are remembered
	whyAgain     = 30 * time.Second // a stream asks again why a gang waits, or
	whyChanged   = time.Second / 2  // if the object changed
	onceWithin   = 10 * time.Minute // a laptop's URL can be opened
)

// timing is what tests shorten.
type timing struct {
	session      time.Duration // after the last page
	streamReview time.Duration // a review counts in a stream
	streamEach   time.Duration // a stream looks for changes,
	streamIdle   time.Duration // and renders without one, for ages go on
	write        time.Duration // a browser takes what is written
}

var usual = timing{session: 15 * time.Minute, streamReview: time.Minute, streamEach: time.Second / 2,
	streamIdle: 15 * time.Second, write: writeWithin}
