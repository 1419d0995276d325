package home

// Whose gang it is: its PodGroup's user, if an annotation names one, else that of all its pods, else nobody's, which is
// its namespace's. Where its pods name different users, it is the namespace's, too: a user who adds his pod to the gang
// of another one charges that one nothing. The coordinator goes by the first request of an attempt.

// userOf returns the user of a gang, "" for its namespace, and his groups, one a line.
func userOf(g *gang) (user, groups string) {
	if g.group != nil && g.group.User != "" {
		return g.group.User, g.group.Groups
	}
	for _, p := range g.members {
		switch {
		case p.Finished:
		case p.User == "": // as all of a cluster whose policies name no users: nothing more is looked at
			return "", ""
		case user == "":
			user, groups = p.User, p.Maker.Group
		case p.User != user:
			return "", ""
		case p.Maker.Group < groups: // he was in other groups when he made it: the first in order, whatever the order of pods
			groups = p.Maker.Group
		}
	}
	return user, groups
}
