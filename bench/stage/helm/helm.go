// Package helm names Helm and kustomize and their versions, as tools of this module, with which a test renders and installs what deploy
// holds. Package bench/stage/local builds them; there is no code here.
package helm
