package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// addArrows adds an arrow for each file that uses an identifier of another file.
func (p *pkg) addArrows() {
	for id, object := range p.info.Uses {
		if object.Pkg() != p.own || !p.isShared(object) {
			continue
		}
		a := arrow{p.fileOf(id.Pos()), p.fileOf(object.Pos())}
		if a.from != a.to && !slices.Contains(p.arrows[a], object.Name()) {
			p.arrows[a] = append(p.arrows[a], object.Name())
		}
	}
	for a := range p.arrows {
		slices.Sort(p.arrows[a])
	}
}

// isShared reports whether other files can use an object of the package: the object is declared outside of
// functions, or is a field or a method.
func (p *pkg) isShared(object types.Object) bool {
	if object.Parent() == p.own.Scope() {
		return true
	}
	switch o := object.(type) {
	case *types.Var:
		return o.IsField()
	case *types.Func:
		return o.Signature().Recv() != nil
	}
	return false
}

// structure is a struct of the package, with its fields, including those of structs of the package that it
// embeds.
type structure struct {
	name   string
	fields []*types.Var
}

func (p *pkg) largestStructure() (largest structure) {
	for _, name := range p.own.Scope().Names() {
		object, ok := p.own.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		if s, ok := object.Type().Underlying().(*types.Struct); ok {
			if fields := p.fieldsOf(s); len(fields) > len(largest.fields) {
				largest = structure{name, fields}
			}
		}
	}
	return largest
}

func (p *pkg) fieldsOf(s *types.Struct) (fields []*types.Var) {
	for f := range s.Fields() {
		inner, isStruct := f.Type().Underlying().(*types.Struct)
		if named, ok := f.Type().(*types.Named); f.Embedded() && isStruct && ok && named.Obj().Pkg() == p.own {
			fields = append(fields, p.fieldsOf(inner)...)
			continue
		}
		fields = append(fields, f)
	}
	return fields
}

// writes reports whether a file assigns to a field of a struct, or to a part or an element of a field, or
// takes the address of a field. A composite literal of the struct does not count.
func (p *pkg) writes(file *ast.File, s structure) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		var targets []ast.Expr
		switch n := n.(type) {
		case *ast.AssignStmt:
			targets = n.Lhs
		case *ast.IncDecStmt:
			targets = []ast.Expr{n.X}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				targets = []ast.Expr{n.X}
			}
		}
		found = found || slices.ContainsFunc(targets, func(e ast.Expr) bool { return p.reaches(e, s) })
		return !found
	})
	return found
}

// reaches reports whether an expression is a field of a struct, or a part of a field.
func (p *pkg) reaches(e ast.Expr, s structure) bool {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		if sel := p.info.Selections[e]; sel != nil && sel.Kind() == types.FieldVal && slices.Contains(s.fields, sel.Obj().(*types.Var)) {
			return true
		}
		if _, pointer := p.info.TypeOf(e.X).Underlying().(*types.Pointer); pointer {
			return false // the target of a pointer is not part of the struct
		}
		return p.reaches(e.X, s)
	case *ast.IndexExpr:
		return p.reaches(e.X, s)
	case *ast.ParenExpr:
		return p.reaches(e.X, s)
	}
	return false
}
