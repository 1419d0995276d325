package api

import (
	"cmp"
	"slices"
	"strings"
	"unique"

	v1 "k8s.io/api/core/v1"
)

// Images (Rules.Images): a pod prefers nodes that have its images already. By the names that the kubelet reports, and the sizes. They are
// wishes of a class.
const (
	MaxWishImages  = 32      // containers whose image counts, in the order of the spec
	MaxNodeImages  = 256     // names of images of a node
	maxImageName   = 512     // bytes; a longer one counts for nobody
	leastImageSize = 1 << 20 // bytes; what takes no time to pull is left out
)

// Image is one that a node has.
type Image struct {
	Name  string
	Bytes int64
}

// Images are sorted by name. Nodes have the same ones, so each is kept once.
type Images []unique.Handle[Image]

func compareImage(h unique.Handle[Image], name string) int {
	return strings.Compare(h.Value().Name, name)
}

// Size returns how large an image is, 0 if it is not among them.
func (s Images) Size(name string) int64 {
	i, is := slices.BinarySearchFunc(s, name, compareImage)
	if !is {
		return 0
	}
	return s[i].Value().Bytes
}

// nodeImages reads status.images.
func nodeImages(list []v1.ContainerImage) Images {
	var out Images
	for i := range list {
		for _, name := range list[i].Names {
			if len(name) <= maxImageName && list[i].SizeBytes >= leastImageSize {
				out = append(out, unique.Make(Image{strings.Clone(name), list[i].SizeBytes}))
			}
		}
	}
	slices.SortFunc(out, func(a, b unique.Handle[Image]) int {
		x, y := a.Value(), b.Value()
		return cmp.Or(strings.Compare(x.Name, y.Name), cmp.Compare(y.Bytes, x.Bytes))
	})
	out = slices.CompactFunc(out, func(a, b unique.Handle[Image]) bool { return a.Value().Name == b.Value().Name })
	return out[:min(len(out), MaxNodeImages)]
}

// imagesOf returns the images of a pod's containers and volumes as the kubelet names them, sorted; one that several containers run is there as often.
func imagesOf(p *v1.Pod) (out []string) {
	add := func(name string) {
		if name != "" && len(name) <= maxImageName && len(out) < MaxWishImages {
			if strings.LastIndexByte(name, ':') <= strings.LastIndexByte(name, '/') {
				name += ":latest"
			}
			out = append(out, name)
		}
	}
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			add(containers[i].Image)
		}
	}
	for i := range p.Spec.Volumes {
		if image := p.Spec.Volumes[i].Image; image != nil {
			add(image.Reference)
		}
	}
	slices.Sort(out)
	return out
}

// StripPod is StripPod, with the images if the rules need them.
func (r *Rules) StripPod(p *v1.Pod) *v1.Pod {
	out := StripPod(p)
	if r.Images && p.Spec.NodeName == "" {
		keepImages(out.Spec.Containers, p.Spec.Containers)
		keepImages(out.Spec.InitContainers, p.Spec.InitContainers)
		kept := 0
		for i := range p.Spec.Volumes {
			if image := p.Spec.Volumes[i].Image; image != nil && len(image.Reference) <= maxImageName && kept < MaxWishImages {
				kept++
				out.Spec.Volumes = append(out.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: image.Reference}}})
			}
		}
	}
	return out
}

// keepImages does so where the containers themselves are kept: those of a pod that is too large are not.
func keepImages(kept, all []v1.Container) {
	if len(kept) != len(all) {
		return
	}
	for i := range all {
		if len(all[i].Image) <= maxImageName {
			kept[i].Image = all[i].Image
		}
	}
}

// StripNode is StripNode, with the images if the rules need them.
func (r *Rules) StripNode(n *v1.Node) *v1.Node {
	out := StripNode(n)
	if r.Images {
		out.Status.Images = n.Status.Images
	}
	return out
}
