package volume

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/csi-translation-lib/plugins"
	"k8s.io/klog/v2"

	"basalt.dev/basalt/api"
)

// Volumes of in-tree kinds. Kubernetes migrates them to CSI drivers, and k8s.io/csi-translation-lib says which driver that is, how it names
// the volume, and what the zones of the volume are in its labels. They are translated where they are read (ReadVolume, Disk), so that whoever
// counts and compares volumes sees those of CSI drivers only.
//
// Whether a plugin is migrated is up to each node (CSINode annotation storage.alpha.kubernetes.io/migrated-plugins): elsewhere the node
// affinity of the volume means what it says. All nodes have migrated all plugins as a rule. So nodes that have not are marked with a label
// (api.UnmigratedMark) once a pod of ours asks for a volume for which that makes a difference, and the affinity of the volume names the mark.
//
// As for kube-scheduler, a volume of azureFile or vsphereVolume counts for no driver, and its affinity is not translated.

// inTree are the plugins that kube-scheduler 1.37 takes for migrated (isCSIMigrationOn of its filters).
var inTree = map[string]bool{
	plugins.AWSEBSInTreePluginName:    true,
	plugins.AzureDiskInTreePluginName: true,
	plugins.CinderInTreePluginName:    true,
	plugins.GCEPDInTreePluginName:     true,
	plugins.PortworxVolumePluginName:  true,
}

var translator = csitranslation.New()

// MigratedPlugins returns the plugins that a CSINode says are migrated on its node, of those for which it matters.
func MigratedPlugins(annotations map[string]string) map[string]bool {
	var out map[string]bool
	for name := range strings.SplitSeq(annotations[v1.MigratedPluginsAnnotationKey], ",") {
		if inTree[name] {
			if out == nil {
				out = map[string]bool{}
			}
			out[name] = true
		}
	}
	return out
}

// driverOf returns the CSI driver that counts the volumes of a provisioner, "" for none.
func driverOf(provisioner string) string {
	switch driver, err := translator.GetCSINameFromInTreeName(provisioner); {
	case err != nil: // of no in-tree kind
		return provisioner
	case inTree[provisioner]:
		return driver
	}
	return ""
}

// sourceOf returns the plugin of a volume of an in-tree kind, "" for others, the field that names the volume, and its value.
func sourceOf(s *v1.PersistentVolumeSource) (plugin, field, id string) {
	switch {
	case s.CSI != nil:
		return "", "", ""
	case s.AWSElasticBlockStore != nil:
		return plugins.AWSEBSInTreePluginName, "awsElasticBlockStore.volumeID", s.AWSElasticBlockStore.VolumeID
	case s.AzureDisk != nil:
		return plugins.AzureDiskInTreePluginName, "azureDisk.diskURI", s.AzureDisk.DataDiskURI
	case s.Cinder != nil:
		return plugins.CinderInTreePluginName, "cinder.volumeID", s.Cinder.VolumeID
	case s.GCEPersistentDisk != nil:
		return plugins.GCEPDInTreePluginName, "gcePersistentDisk.pdName", s.GCEPersistentDisk.PDName
	case s.PortworxVolume != nil:
		return plugins.PortworxVolumePluginName, "portworxVolume.volumeID", s.PortworxVolume.VolumeID
	}
	return "", "", ""
}

// stripSource keeps what translate reads of a volume of an in-tree kind.
func stripSource(s *v1.PersistentVolumeSource) (out v1.PersistentVolumeSource) {
	switch {
	case s.AWSElasticBlockStore != nil:
		out.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: s.AWSElasticBlockStore.VolumeID}
	case s.AzureDisk != nil:
		out.AzureDisk = &v1.AzureDiskVolumeSource{DataDiskURI: s.AzureDisk.DataDiskURI, Kind: s.AzureDisk.Kind}
	case s.Cinder != nil:
		out.Cinder = &v1.CinderPersistentVolumeSource{VolumeID: s.Cinder.VolumeID}
	case s.GCEPersistentDisk != nil:
		out.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{PDName: s.GCEPersistentDisk.PDName}
	case s.PortworxVolume != nil:
		out.PortworxVolume = &v1.PortworxVolumeSource{VolumeID: s.PortworxVolume.VolumeID}
	}
	return out
}

// translate returns a volume as one of the CSI driver in the place of its plugin, which is "" for a volume of no in-tree kind; or why that
// cannot be done.
func translate(v *v1.PersistentVolume) (out *v1.PersistentVolume, plugin, why string) {
	plugin, field, id := sourceOf(&v.Spec.PersistentVolumeSource)
	switch {
	case plugin == "":
		return v, "", ""
	case id == "":
		return nil, plugin, "spec." + field + " is empty"
	}
	small := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: v.Labels}}
	small.Spec.PersistentVolumeSource, small.Spec.NodeAffinity = stripSource(&v.Spec.PersistentVolumeSource), v.Spec.NodeAffinity
	out, err := translator.TranslateInTreePVToCSI(klog.Logger{}, small)
	if err != nil {
		switch plugin { // whatever else may be wrong
		case plugins.AzureDiskInTreePluginName:
			field = "azureDisk.kind"
		case plugins.GCEPDInTreePluginName:
			return nil, plugin, untranslated("metadata.labels", plugin, err) // the zones
		}
		return nil, plugin, untranslated("spec."+field, plugin, err)
	}
	return out, plugin, ""
}

func untranslated(field, plugin string, err error) string {
	driver, _ := translator.GetCSINameFromInTreeName(plugin)
	return fmt.Sprintf("%s: it cannot be translated for the CSI driver %s, which serves it: %s", field, driver, api.Shorten(err.Error(), 200))
}

// marked returns where a volume can be used: by one selector on nodes that have migrated its plugin, and by another one on others; or that it
// would be too large.
func marked(plugin string, migrated, others *v1.NodeSelector) (*v1.NodeSelector, bool) {
	mark := api.UnmigratedMark(plugin)
	out := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{}}
	for _, of := range []struct {
		where *v1.NodeSelector
		mark  v1.NodeSelectorOperator
	}{{migrated, v1.NodeSelectorOpDoesNotExist}, {others, v1.NodeSelectorOpExists}} {
		where, ok := api.AllOf(of.where, &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: mark, Operator: of.mark}}}}})
		if !ok {
			return nil, false
		}
		out.NodeSelectorTerms = append(out.NodeSelectorTerms, where.NodeSelectorTerms...)
	}
	return api.AllOf(out)
}

// Disk returns the CSI driver of a disk in a pod that Kubernetes migrates to CSI, and how that names it: the disk counts against the limits of
// the driver. The driver is "" for any other volume, and why says for a user what is wrong with a disk that cannot be translated.
func Disk(v *v1.Volume) (driver, handle, why string) {
	plugin, field := "", "" // the field that cannot be translated if something cannot
	switch {
	case v.AWSElasticBlockStore != nil:
		plugin, field = plugins.AWSEBSInTreePluginName, "awsElasticBlockStore.volumeID"
	case v.AzureDisk != nil:
		plugin, field = plugins.AzureDiskInTreePluginName, "azureDisk.kind"
	case v.Cinder != nil:
		plugin, field = plugins.CinderInTreePluginName, "cinder.volumeID"
	case v.GCEPersistentDisk != nil:
		plugin, field = plugins.GCEPDInTreePluginName, "gcePersistentDisk.pdName"
	case v.PortworxVolume != nil:
		plugin, field = plugins.PortworxVolumePluginName, "portworxVolume.volumeID"
	default:
		return "", "", ""
	}
	driver, _ = translator.GetCSINameFromInTreeName(plugin)
	pv, err := translator.TranslateInTreeInlineVolumeToCSI(klog.Logger{}, v, "")
	if err != nil {
		return driver, "", untranslated(field, plugin, err)
	}
	return driver, pv.Spec.CSI.VolumeHandle, ""
}
