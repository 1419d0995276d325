package main

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

func sbomName(p v1.Platform) string { return "basalt-" + p.OS + "-" + p.Architecture + ".spdx.json" }

// writeSBOM writes an SPDX 2.3 document: the image contains the program and the roots, and the program consists of the modules that the
// go tool recorded in it, and of Go's standard library.
func writeSBOM(to string, src *source, p v1.Platform, info *debug.BuildInfo, content []byte, digest v1.Hash) error {
	return writeDocument(to, newSBOM(src, p, info, content, digest, theImage))
}

func writeDocument(to string, document *v2_3.Document) error {
	var out bytes.Buffer
	if err := spdxjson.Write(document, &out, spdxjson.Indent("  ")); err != nil {
		return fmt.Errorf("write the SPDX document: %w", err)
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}

// artifact is what a document is about: something that contains the program.
type artifact struct {
	id            common.ElementID
	name, purpose string
	file          string // its name
	roots         bool   // it has the CA roots, too
	licenses      string // where its licences are
}

var theImage = artifact{
	id:       "Image",
	name:     "basalt-image",
	purpose:  "CONTAINER",
	file:     layoutName,
	roots:    true,
	licenses: "in the image's folder /",
}

func newSBOM(
	src *source,
	p v1.Platform,
	info *debug.BuildInfo,
	content []byte,
	digest v1.Hash,
	of artifact,
) *v2_3.Document {
	const programID, fileID = "Package-basalt", "File-basalt"
	imageID := of.id
	container := sbomPackage(string(imageID), of.name, src.version, of.purpose)
	container.PackageFileName = of.file
	container.PackageChecksums = []common.Checksum{
		{Algorithm: common.SHA256, Value: digest.Hex},
	} // of the image's manifest, or of the file
	application := sbomPackage(programID, info.Main.Path, src.version, "APPLICATION")
	application.PackageSourceInfo = "commit " + src.commit
	container.PackageSupplier = &common.Supplier{SupplierType: "Organization", Supplier: "Basalt"}
	application.PackageSupplier = container.PackageSupplier
	application.PackageLicenseConcluded, application.PackageLicenseDeclared = "Apache-2.0", "Apache-2.0"
	container.PackageLicenseDeclared = "Apache-2.0" // its /licenses has the others
	sum1, sum256 := sha1.Sum(content), sha256.Sum256(content)
	d := &v2_3.Document{
		SPDXVersion:       v2_3.Version,
		DataLicense:       v2_3.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      "basalt-" + src.version + "-" + p.OS + "-" + p.Architecture,
		DocumentNamespace: "https://basalt.dev/spdx/basalt-" + p.OS + "-" + p.Architecture + "-" + digest.Hex,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "Basalt"}, {CreatorType: "Tool", Creator: "basalt-make-image"}},
			Created:  src.time.Format("2006-01-02T15:04:05Z"),
		},
		Packages: []*v2_3.Package{container, application},
		Files: []*v2_3.File{{
			FileName:           "./basalt",
			FileSPDXIdentifier: fileID,
			FileTypes:          []string{"BINARY"},
			Checksums:          []common.Checksum{{Algorithm: common.SHA1, Value: hex.EncodeToString(sum1[:])}, {Algorithm: common.SHA256, Value: hex.EncodeToString(sum256[:])}},
			LicenseConcluded:   "NOASSERTION", // Apache-2.0 and the licences of the modules
			FileCopyrightText:  "NOASSERTION",
		}},
	}
	relate := func(a common.ElementID, relation string, b common.ElementID) {
		d.Relationships = append(d.Relationships, &v2_3.Relationship{RefA: common.MakeDocElementID("", string(a)), RefB: common.MakeDocElementID("", string(b)), Relationship: relation})
	}
	relate("DOCUMENT", common.TypeRelationshipDescribe, imageID)
	relate(imageID, common.TypeRelationshipContains, fileID)
	relate(imageID, common.TypeRelationshipContains, programID)
	relate(fileID, common.TypeRelationshipGeneratedFrom, programID)

	modules := slices.SortedFunc(slices.Values(info.Deps), func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	for _, m := range append([]*debug.Module{standardLibrary(info)}, modules...) {
		q := goModule(cmp.Or(m.Replace, m))
		q.PackageLicenseComments = "The licences are " + of.licenses + licensesOf(m.Path) + "."
		d.Packages = append(d.Packages, q)
		relate(programID, common.TypeRelationshipDependsOn, q.PackageSPDXIdentifier)
	}
	for _, m := range tools(rootsModule) {
		if !of.roots {
			break
		}
		q := goModule(m)
		q.PackageDescription = "Its roots are /etc/ssl/certs/ca-certificates.crt."
		d.Packages = append(d.Packages, q)
		relate(imageID, common.TypeRelationshipContains, q.PackageSPDXIdentifier)
	}
	return d
}

// stdlib is what scanners for vulnerabilities call Go's standard library.
const stdlib = "stdlib"

func standardLibrary(info *debug.BuildInfo) *debug.Module {
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ") // an experiment may follow
	return &debug.Module{Path: stdlib, Version: "v" + version}
}

const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// tools returns the module of that path that is linked into this very program.
func tools(path string) []*debug.Module {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(info.Deps), func(m *debug.Module) bool { return m.Path != path })
}

// goModule names a module by its package URL. Its sum is no checksum of a file that anybody can download, so it is not given as one.
func goModule(m *debug.Module) *v2_3.Package {
	q := sbomPackage("Module-"+m.Path+"-"+m.Version, m.Path, m.Version, "LIBRARY")
	if m.Sum != "" {
		q.PackageSourceInfo = "go.sum " + m.Sum
	}
	if m.Version != "" { // none: replaced by a folder
		q.PackageExternalReferences = []*v2_3.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: packageURL(m)}}
	}
	return q
}

// packageURL is of the purl specification: a module's path is in lower case there.
func packageURL(m *debug.Module) string {
	version := m.Version
	if m.Path == stdlib {
		version = strings.TrimPrefix(version, "v")
	}
	return "pkg:golang/" + strings.ToLower(m.Path) + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}

var notInID = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

func sbomPackage(id, name, version, purpose string) *v2_3.Package {
	return &v2_3.Package{
		PackageSPDXIdentifier:   common.ElementID(notInID.ReplaceAllString(id, "-")),
		PackageName:             name,
		PackageVersion:          version,
		PackageSupplier:         &common.Supplier{Supplier: "NOASSERTION"},
		PackageDownloadLocation: "NOASSERTION",
		PackageLicenseConcluded: "NOASSERTION",
		PackageLicenseDeclared:  "NOASSERTION",
		PackageCopyrightText:    "NOASSERTION",
		PrimaryPackagePurpose:   purpose,
	}
}
